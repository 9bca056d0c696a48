// The HTTP interface of the aggregator. Every request stays on this origin.

const BASE = "/api/v1";
const PATIENCE_MS = 12_000;

export class ApiError extends Error {
  constructor(status, code, message, hint) {
    super(message);
    Object.assign(this, { status, code, hint });
  }
}

async function request(method, path, body) {
  const headers = method === "GET" ? {} : { "X-Chord": "1", "Content-Type": "application/json" };
  let response;
  try {
    response = await fetch(BASE + path, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: AbortSignal.timeout(PATIENCE_MS),
    });
  } catch {
    throw new ApiError(0, "unreachable", "The dashboard's server does not respond.", "Check that `chord dashboard` still runs.");
  }
  const content = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = content.error ?? content;
    const found = new ApiError(response.status, error.code, error.message ?? `HTTP ${response.status}`, error.hint);
    found.content = content;
    throw found;
  }
  return content;
}

const b64 = (key) => {
  const bytes = new TextEncoder().encode(key);
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
};

export const api = {
  requests: (bins) => request("GET", `/requests?bins=${bins}`),
  node: (name) => request("GET", `/nodes/${encodeURIComponent(name)}?peers`),
  lookup: (body) => request("POST", "/lookup", body),
  compare: (body) => request("POST", "/lookup/compare", body),
  inspect: (key) => request("GET", `/keys/${b64(key)}?inspect`),
  get: (key) => request("GET", `/keys/${b64(key)}`),
  put: (key, value, context) => request("PUT", `/keys/${b64(key)}`, { value, ...(context ? { context } : {}) }),
  remove: (key, context) => request("DELETE", `/keys/${b64(key)}${context ? `?context=${encodeURIComponent(context)}` : ""}`),
  heat: (windowS) => request("GET", `/heat?bins=256&window=${windowS}`),
  history: (fromMs, toMs) => request("GET", `/history?from=${fromMs}&to=${toMs}`),
  metrics: () => request("GET", "/metrics.json"),
  chaos: (what, node) => request("POST", "/chaos", { do: what, node }),
  partition: (nodes) => request("POST", "/chaos", { do: "partition", nodes }),
  heal: () => request("POST", "/chaos", { do: "heal" }),
  gallery: () => request("GET", "/gallery"),
  galleryRun: (name, query) => request("GET", `/gallery/${name}?${new URLSearchParams(Object.entries(query).filter(([, value]) => value !== null))}`),
  reports: () => request("GET", "/lab"),
  reportUrl: (name) => `${BASE}/lab/${encodeURIComponent(name)}`,
  recordingUrl: `${BASE}/recording`,
  eventsUrl: `${BASE}/events`,
};

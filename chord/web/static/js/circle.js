// The geometry of the identifier circle. Ids are decimal strings; a position is a share of the circle, 0 to 1.

export function position(id, bits) {
  return bits <= 53 ? Number(id) / 2 ** bits : Number(BigInt(id) >> BigInt(bits - 53)) / 2 ** 53;
}

// The clockwise distance from one position to another.
export function clockwise(from, to) {
  const d = (to - from) % 1;
  return d < 0 ? d + 1 : d;
}

// The length of the arc (start, end]; if both ends are equal, it is the whole circle.
export function arcLength(start, end) {
  return clockwise(start, end) || 1;
}

export function hex(id, bits) {
  return BigInt(id).toString(16).padStart(Math.ceil(bits / 4), "0");
}

// A short name of a point: the number itself on a small circle, otherwise the ends of its hexadecimal form.
export function shortId(id, bits) {
  if (bits <= 20) return String(id);
  const text = hex(id, bits);
  return `${text.slice(0, 4)}…${text.slice(-4)}`;
}

export function percent(share, digits = 1) {
  return `${(100 * share).toFixed(share !== 0 && share < 0.0995 ? digits : Math.min(digits, 1))} %`;
}

// A whole number with narrow spaces between groups of three digits.
export function count(n) {
  return n === null || n === undefined ? "–" : Math.round(n).toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

export const counted = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (n >= 1000 && unit < units.length - 1) {
    n /= 1000;
    unit += 1;
  }
  return `${unit && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

export function ms(value) {
  if (value === null || value === undefined) return "–";
  return value < 10 ? `${value.toFixed(2)} ms` : value < 1000 ? `${value.toFixed(1)} ms` : `${(value / 1000).toFixed(1)} s`;
}

export function duration(seconds) {
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

// H_n, the value expected of the largest of n random arcs over their mean.
export function harmonic(n) {
  let sum = 0;
  for (let i = 1; i <= n; i += 1) sum += 1 / i;
  return sum;
}

"""What a node keeps about itself for its watchers: events, histograms, samples."""

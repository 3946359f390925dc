// Durations as a run file writes them: "5ms", "1.5h". The page counts in microseconds.

const UNITS = { ms: 1e3, s: 1e6, m: 6e7, h: 3.6e9, d: 8.64e10 };

/** Parse a duration; null if the text is none. */
export function parseDuration(text) {
  const found = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*$/.exec(String(text ?? ""));
  return found ? Math.round(Number(found[1]) * UNITS[found[2]]) : Number(text) === 0 && text !== "" && text != null ? 0 : null;
}

/** Write a duration in the largest unit that leaves at most three decimals. */
export function formatDuration(us) {
  for (const unit of ["d", "h", "m", "s"]) {
    const value = us / UNITS[unit];
    if (value >= 1 && Math.abs(value * 1000 - Math.round(value * 1000)) < 1e-6) return `${Math.round(value * 1000) / 1000}${unit}`;
  }
  return us === 0 ? "0s" : `${Math.round(us) / 1000}ms`;
}

const ROUND = [1, 2, 5, 10, 20, 30, 50, 100, 200, 500].map((n) => n * UNITS.ms).concat(
  ...["s", "m"].map((unit) => [1, 2, 5, 10, 15, 20, 30].map((n) => n * UNITS[unit])), [1, 2, 3, 6, 12, 24, 48].map((n) => n * UNITS.h));

/** Choose a duration near this one that people use: 5s, 30m, 1h. */
export function chooseNear(us) {
  return ROUND.reduce((best, one) => (Math.abs(Math.log(one / us)) < Math.abs(Math.log(best / us)) ? one : best));
}

/** Round a duration so that it is easy to read: two digits. */
export function roundDuration(us) {
  if (us < 1000) return 1000;
  const step = 10 ** Math.max(3, Math.floor(Math.log10(us)) - 1);
  return Math.round(us / step) * step;
}

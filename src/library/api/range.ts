/**
 * Parses a Range header with one range of bytes (RFC 9110, 14.1.2). `end` is exclusive. Anything else, such as several
 * ranges, is `whole`, as the RFC allows.
 */
export function parseRange(header: string, size: number): { start: number; end: number } | 'whole' | 'unsatisfiable' {
  const match = /^bytes=(\d*)-(\d*)$/i.exec(header.trim());
  if (!match || (match[1] === '' && match[2] === '')) return 'whole';
  if (match[1] === '') {
    const length = Math.min(Number(match[2]), size);
    return length === 0 ? 'unsatisfiable' : { start: size - length, end: size };
  }
  const start = Number(match[1]);
  const last = match[2] === '' ? Infinity : Number(match[2]);
  if (last < start) return 'whole';
  return start >= size ? 'unsatisfiable' : { start, end: Math.min(last + 1, size) };
}

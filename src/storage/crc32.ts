/** The form in records: eight lower-case digits. */
export const hexOf = (crc: number) => crc.toString(16).padStart(8, '0');

/**
 * CRC-32 of two concatenated inputs, from the CRC-32 of each and the length of the second in bytes. (crc32_combine of zlib:
 * to append n zero bytes is a multiplication by x^(8n) modulo the polynomial.)
 */
export function crc32Combine(first: number, second: number, secondLength: number): number {
  return (multiply(powerOfX(secondLength), first) ^ second) >>> 0;
}

const polynomial = 0xedb88320;

/** a(x)·b(x) modulo the polynomial, bits reflected. */
function multiply(a: number, b: number): number {
  let product = 0;
  for (let bit = 0x80000000; bit !== 0; bit >>>= 1) {
    if ((a & bit) !== 0) product ^= b;
    b = (b & 1) === 1 ? (b >>> 1) ^ polynomial : b >>> 1;
  }
  return product >>> 0;
}

/** x^(8·bytes) modulo the polynomial. */
function powerOfX(bytes: number): number {
  let power = 0x80000000;
  // x^8, squared for each bit of the length. A length can exceed 32 bits, so it is halved, not shifted.
  let square = 0x00800000;
  for (let left = bytes; left > 0; left = Math.floor(left / 2)) {
    if (left % 2 === 1) power = multiply(square, power);
    square = multiply(square, square);
  }
  return power;
}

/** The CRC-32 of all parts in order, lower-case hex. */
export function crc32Of(parts: { bytes: number; crc32: string }[]): string {
  const whole = parts.reduce((sum, { bytes, crc32 }) => crc32Combine(sum, Number.parseInt(crc32, 16), bytes), 0);
  return hexOf(whole);
}

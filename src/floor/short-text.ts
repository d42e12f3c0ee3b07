/** A body as text; undefined if it is longer than `longest` bytes. */
export async function shortText(body: AsyncIterable<Buffer>, longest: number): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > longest) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

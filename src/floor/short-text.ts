/** A body; undefined if it is longer than `longest` bytes. */
export async function shortBody(body: AsyncIterable<Buffer>, longest: number): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > longest) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** A body as text; undefined if it is longer than `longest` bytes. */
export const shortText = async (body: AsyncIterable<Buffer>, longest: number): Promise<string | undefined> =>
  (await shortBody(body, longest))?.toString('utf8');

import type { Body } from '../../src/library/content/body.ts';

/** All bytes of a file of the library. */
export async function contentsOf(body: Body): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of body.chunks(0, body.size)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

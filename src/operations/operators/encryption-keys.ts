import { z } from 'zod';
import type { OperationsDeps } from '../deps.ts';
import { count } from '../fields.ts';

export const rotatedKeysAnswer = z
  .object({
    key: z.string().describe('The key that now encrypts all tokens and secrets: the first digits of its SHA-256.'),
    rotated: count,
    already: count,
    unreadable: z
      .array(z.object({ name: z.string(), reason: z.string() }))
      .describe('`name`: the id of a connection, or "consent" or "webhook" and an id.'),
  })
  .meta({ id: 'RotatedKeys' });

export const keyOperations = ({ tokens }: Pick<OperationsDeps, 'tokens'>) => ({
  /** Encrypts all tokens and webhook secrets with the first key of this process. */
  rotateKeys: () => tokens.rotateKeys(),
});

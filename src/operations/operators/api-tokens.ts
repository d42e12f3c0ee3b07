import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { z } from 'zod';
import { redact } from '../../floor/errors.ts';
import { type Operator, roles } from '../../floor/roles.ts';
import { dayMs } from '../../floor/units.ts';
import type { ApiToken } from '../../store/database/schema.ts';
import type { OperationsDeps } from '../deps.ts';
import { isoTimes, text, time } from '../fields.ts';
import { Refused } from '../refused.ts';

/** A token is valid for at most this many days. */
const mostDays = 365;
/** Characters of a token that stay visible. */
const beginningLength = 9;

export const tokenRequest = z
  .strictObject({
    name: text
      .max(100, 'must have at most 100 characters')
      .refine((name) => redact(name) === name, 'must not be a secret')
      .describe('What uses it, such as `ci`. Each name is used once.'),
    role: z.enum(roles),
    expiresInDays: z
      .int()
      .min(1)
      .max(mostDays, `must be at most ${mostDays}`)
      .default(90)
      .describe('Days until it expires.'),
  })
  .meta({ id: 'TokenRequest' });
export type TokenRequest = z.input<typeof tokenRequest>;

const tokenAnswer = z
  .object({
    id: z.string(),
    name: z.string(),
    role: z.enum(roles),
    beginning: z.string().describe('The first characters of the token.'),
    createdBy: z.string(),
    createdAt: time,
    expiresAt: time,
    lastUsedAt: time.nullable(),
  })
  .meta({ id: 'Token' });
export const tokenList = z.object({ tokens: z.array(tokenAnswer) }).meta({ id: 'TokenList' });
export const createdToken = tokenAnswer
  .extend({ token: z.string().describe('The token, which is shown only now.') })
  .meta({ id: 'CreatedToken' });
export const revokedToken = z.object({ id: z.string(), name: z.string() }).meta({ id: 'RevokedToken' });

/** Without the hash, which is not in the schema. */
const shown = (token: ApiToken) => tokenAnswer.parse(isoTimes(token));

/** A secret that nobody can guess, with the prefix by which scanners recognise secrets of asset-mirror. */
export const newSecret = () => `am_${randomBytes(24).toString('hex')}`;
/** What the database keeps of a secret. */
export const hashOf = (secret: string) => createHash('sha256').update(secret).digest('base64url');

export function apiTokenOperations({ store }: Pick<OperationsDeps, 'store'>) {
  return {
    async tokens() {
      return { tokens: (await store.apiTokens.list()).map(shown) };
    },

    /** @throws Refused 409 if the name is taken */
    async createToken(request: TokenRequest, creator: Operator) {
      const { name, role, expiresInDays } = tokenRequest.parse(request);
      const token = newSecret();
      const added = await store.apiTokens.add({
        id: randomUUID(),
        name,
        role,
        hash: hashOf(token),
        beginning: token.slice(0, beginningLength),
        createdBy: creator.name,
        expiresAt: new Date(Date.now() + expiresInDays * dayMs),
      });
      if (!added) {
        throw new Refused(
          409,
          'name_taken',
          `There is a token with the name ${name}. Revoke it, or choose another name.`,
        );
      }
      return { ...shown(added), token };
    },

    /** Removes a token by its id, its name or the token itself. It stops working at once. @throws Refused 404 */
    async revokeToken(idOrName: string) {
      const removed = await store.apiTokens.remove(idOrName, hashOf(idOrName));
      if (!removed) {
        throw new Refused(
          404,
          'token_not_found',
          `There is no token ${redact(idOrName)}. List them with \`asset-mirror tokens list\`.`,
        );
      }
      return { id: removed.id, name: removed.name };
    },
  };
}

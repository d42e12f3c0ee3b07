import { z } from 'zod';
import { type ConnectLink, connectUrl, readConnectLink } from '../../oauth/authorize.ts';
import { allowedReturnUrl } from '../../oauth/return-url.ts';
import type { OperationsDeps } from '../deps.ts';
import { text, time } from '../fields.ts';
import { Refused } from '../refused.ts';
import { existingConnection } from './connections.ts';
import { tagsRequest } from './tags.ts';

/** Bytes of tags and return URL: the cookie of a connect attempt contains the link, and browsers keep 4096 bytes of it. */
const longest = 1900;

export const connectLinkRequest = z
  .strictObject({
    connectionId: text.optional(),
    returnUrl: text
      .max(500, 'must have at most 500 characters')
      .optional()
      .describe(
        'Where the user goes afterwards, with `connection` and `status` added. CONNECT_RETURN_ORIGINS must name its origin.',
      ),
    tags: tagsRequest.optional().describe('Tags of the connection; they replace those of an earlier link.'),
  })
  .meta({ id: 'ConnectLinkRequest' });

export const connectLink = z.object({ url: z.url(), expiresAt: time }).meta({ id: 'ConnectLink' });

export function connectLinkOperations({
  store,
  sealer,
  publicUrl,
  returnOrigins,
}: Pick<OperationsDeps, 'store' | 'sealer' | 'publicUrl' | 'returnOrigins'>) {
  return {
    /** Creates a signed link with which a user connects, or reconnects one connection. */
    async createConnectLink(request: z.input<typeof connectLinkRequest>): Promise<{ url: string; expiresAt: string }> {
      const { connectionId, tags, ...wanted } = connectLinkRequest.parse(request);
      if (connectionId !== undefined) await existingConnection(store, connectionId);
      const returnUrl = wanted.returnUrl === undefined ? undefined : checkReturnUrl(wanted.returnUrl, returnOrigins);
      if (Buffer.byteLength(JSON.stringify([tags, returnUrl])) > longest) {
        throw new Refused(
          400,
          'link_too_long',
          'The tags and the return URL are too long for a link. Shorten them, or add tags later with `asset-mirror set`.',
        );
      }
      return connectUrl(sealer, { publicUrl, connectionId, returnUrl, tags, madeAt: await store.now() });
    },
  };
}

/**
 * The link with which a user comes. Undefined: this mirror did not sign it; `refused`: it has expired, or was made before an operator
 * disconnected its connection.
 */
export async function openConnectLink(
  { store, sealer }: Pick<OperationsDeps, 'store' | 'sealer'>,
  signed: string,
): Promise<{ link: ConnectLink; refused?: 'expired' | 'ended' } | undefined> {
  const link = readConnectLink(sealer, signed);
  if (!link) return undefined;
  if (link.expiresAt.getTime() <= Date.now()) return { link, refused: 'expired' };
  const connection = link.connectionId === undefined ? undefined : await store.connections.get(link.connectionId);
  const isEnded = connection?.linksSince && connection.linksSince > link.madeAt;
  return isEnded ? { link, refused: 'ended' } : { link };
}

/** @throws Refused 400 */
function checkReturnUrl(text: string, origins: readonly string[]): string {
  const allowed = allowedReturnUrl(text, origins);
  if (allowed !== undefined) return allowed;
  const expected =
    origins.length > 0
      ? `It must be of the origin ${origins.join(' or ')}, without user, password, spaces, and parameters \`connection\` and \`status\`.`
      : 'CONNECT_RETURN_ORIGINS is empty. Add the origin there, such as https://agency.example.';
  throw new Refused(400, 'return_url_not_allowed', `The return URL is not allowed. ${expected}`);
}

import { createHmac, createSecretKey, hash } from 'node:crypto';

/** All but letters, digits and `-._~` (S3 API, "Signature calculations", UriEncode; a key's `/` stays). */
export const uriEncode = (text: string) =>
  plain.test(text)
    ? text
    : encodeURIComponent(text).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
const plain = /^[\w.~-]*$/;

/** A header's value with single spaces, and none at its ends. */
const spaced = (value: string) => (/^\s|\s$|\s\s|[^\S ]/.test(value) ? value.trim().replace(/\s+/g, ' ') : value);

const hmac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text).digest();
/** The last key that was made: it is good for a day and a region. As an object of Node's it costs a quarter of its bytes. */
let made = { of: '', key: createSecretKey(Buffer.alloc(1)) };

/**
 * Signs a PUT to S3: Signature Version 4 in its headers, which must have `host` and `x-amz-content-sha256` already. `path` and
 * `query` are encoded, the query's names in order (S3 API, "Authenticating requests: using the Authorization header").
 */
export function sign(put: {
  path: string;
  query: string;
  headers: Record<string, string>;
  credentials: { accessKeyId: string; secretAccessKey: string; sessionToken?: string | undefined };
  region: string;
  now: Date;
}): void {
  const { path, query, headers, credentials, region } = put;
  const iso = put.now.toISOString();
  const day = iso.slice(0, 4) + iso.slice(5, 7) + iso.slice(8, 10);
  const time = `${day}T${iso.slice(11, 13)}${iso.slice(14, 16)}${iso.slice(17, 19)}Z`;
  headers['x-amz-date'] = time;
  if (credentials.sessionToken) headers['x-amz-security-token'] = credentials.sessionToken;
  const names = Object.keys(headers).sort();
  const lines = names.map((name) => `${name}:${spaced(headers[name]!)}\n`).join('');
  const signed = names.join(';');
  const canonical = `PUT\n${path}\n${query}\n${lines}\n${signed}\n${headers['x-amz-content-sha256']}`;
  const scope = `${day}/${region}/s3/aws4_request`;
  const of = `${scope} ${credentials.secretAccessKey}`;
  if (made.of !== of) {
    const ofDay = hmac(`AWS4${credentials.secretAccessKey}`, day);
    made = { of, key: createSecretKey(hmac(hmac(hmac(ofDay, region), 's3'), 'aws4_request')) };
  }
  const text = `AWS4-HMAC-SHA256\n${time}\n${scope}\n${hash('sha256', canonical)}`;
  const signature = createHmac('sha256', made.key).update(text).digest('hex');
  headers.authorization = `AWS4-HMAC-SHA256 Credential=${credentials.accessKeyId}/${scope}, SignedHeaders=${signed}, Signature=${signature}`;
}

import { GetObjectCommand } from '@aws-sdk/client-s3';
import { getSignedUrl } from '@aws-sdk/s3-request-presigner';
import type { LinkOptions, Links } from '../storage.ts';
import type { Bucket } from './bucket.ts';
import { agentsTo, connect } from './client.ts';

/** See `Storage.links`. Links lead to S3_PUBLIC_ENDPOINT, if it is set. */
export function linksTo(bucket: Bucket): Links | undefined {
  const { publicEndpoint } = bucket.options;
  if (publicEndpoint === 'none') return undefined;
  const client = publicEndpoint
    ? connect({ ...bucket.options, endpoint: publicEndpoint }, agentsTo(bucket.options))
    : bucket.client;
  const to = (key: string, { contentType, contentDisposition, ms }: LinkOptions) =>
    getSignedUrl(
      client,
      new GetObjectCommand({
        ...bucket.at(key),
        ResponseContentType: contentType,
        ResponseContentDisposition: contentDisposition,
      }),
      { expiresIn: Math.floor(ms / 1000) },
    );
  return {
    to,
    origin: async () => new URL(await to('any', { contentType: '', contentDisposition: '', ms: 1000 })).origin,
  };
}

import { GetObjectCommand } from '@aws-sdk/client-s3';
import { getSignedUrl } from '@aws-sdk/s3-request-presigner';
import type { LinkOptions } from '../storage.ts';
import type { Bucket } from './bucket.ts';
import { agentsTo, connect } from './client.ts';

/** See `Storage.link`. Links lead to S3_PUBLIC_ENDPOINT, if it is set. */
export function linksTo(bucket: Bucket): ((key: string, options: LinkOptions) => Promise<string>) | undefined {
  const { publicEndpoint } = bucket.options;
  if (publicEndpoint === 'none') return undefined;
  // Signing sends no request.
  const client = publicEndpoint
    ? connect({ ...bucket.options, endpoint: publicEndpoint }, agentsTo(bucket.options))
    : bucket.client;
  return (key, { contentType: ResponseContentType, contentDisposition: ResponseContentDisposition, ms }) =>
    getSignedUrl(client, new GetObjectCommand({ ...bucket.at(key), ResponseContentType, ResponseContentDisposition }), {
      expiresIn: Math.floor(ms / 1000),
    });
}

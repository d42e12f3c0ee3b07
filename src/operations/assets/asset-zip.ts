import type { Readable } from 'node:stream';
import { z } from 'zod';
import type { NotCopied } from '../../verify/copy/copy-each.ts';
import { WrongSelection } from '../../verify/copy/select-copies.ts';
import { zipOf } from '../../verify/export/export-zip.ts';
import { type ExportedAsset, selectExports } from '../../verify/export/select-exports.ts';
import type { OperationsDeps } from '../deps.ts';
import { text } from '../fields.ts';
import { Refused } from '../refused.ts';
import { facetQuery, filterOf } from './asset-search.ts';

const most = 1000;
const ids = z.union([text.transform((id) => [id]), z.array(text).max(most)]);
export const zipQuery = facetQuery.extend({
  id: ids.optional().describe('Only these assets. Repeat it for several.'),
});
export const zipRequest = z.strictObject({ id: ids }).meta({ id: 'ZipRequest' });
export type ZipQuery = z.input<typeof zipQuery>;

export function assetZipOperations(deps: Pick<OperationsDeps, 'store' | 'storage' | 'transcripts'>) {
  return {
    /** The media files of the matching assets as a ZIP archive, with a list of those that are not in the bucket. @throws Refused */
    async assetZip(query: ZipQuery, signal: AbortSignal): Promise<Readable> {
      const { id, ...filter } = zipQuery.parse(query);
      const assets: ExportedAsset[] = [];
      const missing: NotCopied[] = [];
      const selection = {
        filter: { ...(await filterOf(deps, filter)), ids: id },
        names: '{project}/{name}',
        sidecars: false,
      };
      const noFiles = new Refused(404, 'no_files', 'No matching asset is in the bucket.');
      try {
        for await (const one of selectExports(deps.store, selection)) {
          signal.throwIfAborted();
          if ('problem' in one) missing.push(one);
          else assets.push(one);
          if (assets.length + missing.length > most) {
            const advice = 'Filter more, or use `asset-mirror export --to FILE.zip`.';
            throw new Refused(409, 'too_many_assets', `More than ${most} assets match. ${advice}`);
          }
        }
      } catch (error) {
        throw error instanceof WrongSelection ? noFiles : error;
      }
      if (assets.length === 0) throw noFiles;
      return zipOf({ storage: deps.storage, signal }, assets, { missing });
    },
  };
}

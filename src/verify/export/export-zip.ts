import type { Readable } from 'node:stream';
import { ZipFile } from 'yazl';
import type { Storage } from '../../storage/storage.ts';
import type { NotCopied } from '../copy/copy-each.ts';
import { described, type FileToCopy, verifiedBody } from '../copy/copy-file.ts';
import { manifestHead, manifestLines, missingList } from './export-list.ts';
import { manifestName, missingName } from './export-names.ts';
import type { ExportedAsset } from './select-exports.ts';

/**
 * The files of assets as a ZIP archive, with a manifest as its last entry. Nothing is compressed: media is already. Each file is
 * verified while it is read. If one is missing or damaged, the stream fails, so that the archive never looks complete.
 * `missing`: assets that are not in the bucket, which `not-included.csv` lists. `onFile` is called after each file.
 */
export function zipOf(
  { storage, signal }: { storage: Storage; signal: AbortSignal },
  assets: ExportedAsset[],
  { missing = [], onFile = () => {} }: { missing?: NotCopied[]; onFile?: (bytes: number) => void },
): Readable {
  const zip = new ZipFile();
  const output = zip.outputStream as Readable;
  zip.on('error', (error) => output.destroy(error));
  const open = async (file: FileToCopy) => {
    const body = await verifiedBody(storage, { ...file, ...(await described(storage, file, signal)) }, signal);
    return body.once('end', () => onFile(file.bytes ?? 0));
  };
  for (const { date: mtime, files } of assets) {
    for (const file of files) {
      // With the length, a reader of the archive need not read to its end to find the next entry.
      const options = { mtime, compress: false, ...(file.bytes !== undefined && { size: file.bytes }) };
      zip.addReadStreamLazy(file.to, options, (give) => {
        open(file).then(
          (body) => {
            body.once('error', (error) => output.destroy(error));
            give(null, body);
          },
          (error) => output.destroy(error),
        );
      });
    }
  }
  zip.addBuffer(Buffer.from(manifestHead + assets.map(manifestLines).join('')), manifestName, { compress: true });
  if (missing.length > 0) zip.addBuffer(Buffer.from(missingList(missing)), missingName);
  zip.end();
  return output;
}

/** The copies that `addMirrored` in records.ts writes to the database, and that null-s3.ts lists. */

export const copiedAt = new Date(Date.UTC(2024, 0, 1));

const padded = (n: number, digits: number) => String(n).padStart(digits, '0');

export const copyKey = (company: number, file: number) => `company-${padded(company, 6)}/k/${padded(file, 9)}`;

/** The record of a copy. `bytes`: the length of its file. */
export function copyRecord(company: number, file: number, bytes: number): Buffer {
  const record = {
    version: 1,
    companyId: `company-${company}`,
    asset: {
      id: `asset-${company}-${file}`,
      name: `file-${file}.bin`,
      mimeType: 'application/octet-stream',
      assetType: 'documents',
      size: bytes,
      uploadDate: copiedAt.getTime(),
      status: 'ready',
    },
    media: {
      key: copyKey(company, file),
      bytes,
      variant: 'original',
      checksums: { crc32: '00000000', sha256: '0'.repeat(64) },
      etag: '0'.repeat(32),
    },
    transcript: { state: 'none', keys: [] },
    thumbnail: null,
    mirroredAt: copiedAt.toISOString(),
  };
  return Buffer.from(JSON.stringify(record));
}

/** The length of a record without its two numbers of the company and of the file. */
export const copyRecordBase = (bytes: number) => copyRecord(1, 0, bytes).length - 4;

import { formatBytes } from '../../floor/units.ts';
import type { ApiClient } from '../client.ts';
import { paint, print, printJson, table } from '../output.ts';

/** Lists the current file of an asset and the superseded ones that are kept. */
export async function versions(api: ApiClient, assetId: string, options: { json?: boolean }): Promise<void> {
  const { versions } = await api.versions(assetId);
  if (options.json) return printJson({ versions });
  const asset = await api.asset(assetId);
  const current = [
    { text: 'current', style: 'green' as const },
    asset.mirroredAt ?? '–',
    '–',
    asset.bytes === null ? '–' : formatBytes(asset.bytes),
    asset.checksums?.crc32 ?? '–',
    asset.mirroredAt === null ? `not complete: ${asset.reason?.text ?? asset.state}` : '',
  ];
  const rows = versions.map(({ version, mirroredAt, replacedAt, media, reason }) => [
    version,
    mirroredAt,
    replacedAt,
    formatBytes(media.bytes),
    media.checksums.crc32 ?? '–',
    reason.text,
  ]);
  print(
    table(
      [
        { title: 'VERSION' },
        { title: 'MIRRORED', spare: 2 },
        { title: 'SUPERSEDED', spare: 1 },
        { title: 'SIZE', right: true },
        { title: 'CRC-32' },
        { title: 'WHY', least: 20 },
      ],
      [current, ...rows],
    ),
  );
  if (versions.length === 0) print(paint('dim', 'No superseded file is kept.'));
}

import { ByteWriter, ParquetWriter, type SchemaElement } from 'hyparquet-writer';
import type { DescribedContents } from '../../store/verifications/contents.ts';
import type { Expected } from '../expected-objects.ts';
import type { InventoryLine } from './inventory-line.ts';

interface Row {
  asset: DescribedContents;
  line: InventoryLine;
  objects: Expected[];
}

const isString = (value: unknown) => typeof value === 'string';
const timeOf = (value: unknown) => (value instanceof Date ? value.getTime() : Date.parse(String(value)));
const integer = (value: unknown) => (Number.isSafeInteger(value) ? BigInt(value as number) : null);

/** Column types by their names in Athena: how Parquet declares and takes their values. Other values become null. */
const types = {
  string: [{ type: 'BYTE_ARRAY', converted_type: 'UTF8' }, (value) => (isString(value) ? value : null)],
  bigint: [{ type: 'INT64' }, integer],
  double: [{ type: 'DOUBLE' }, (value) => (Number.isFinite(value) ? value : null)],
  boolean: [{ type: 'BOOLEAN' }, (value) => (typeof value === 'boolean' ? value : null)],
  timestamp: [{ type: 'INT64', converted_type: 'TIMESTAMP_MILLIS' }, (value) => integer(timeOf(value))],
  'array<string>': [
    { converted_type: 'LIST', num_children: 1 },
    (value) => (Array.isArray(value) && value.every(isString) ? value : null),
  ],
} satisfies Record<string, [Omit<SchemaElement, 'name'>, (value: unknown) => unknown]>;

const mediaOf = ({ asset: { media }, objects }: Row) => (objects.length > 0 ? media : null);
const keysOf = ({ objects }: Row, kind: Expected['kind']) =>
  objects.filter((object) => object.kind === kind).map(({ key }) => key);
const storedBytes = ({ objects }: Row) =>
  objects.length > 0 ? objects.reduce((sum, { bytes = 0 }) => sum + bytes, 0) : null;

/** Readers rely on names and types: only add columns, at the end, and to docs/reference/inventory-table.md. */
const columns: [name: string, type: keyof typeof types, of: (row: Row) => unknown][] = [
  ['asset_id', 'string', ({ line }) => line.id],
  ['asset_name', 'string', ({ line }) => line.name],
  ['company_id', 'string', ({ line }) => line.companyId],
  ['company_name', 'string', ({ asset }) => asset.companyName],
  ['project_id', 'string', ({ line }) => line.projectId],
  ['project_name', 'string', ({ asset }) => asset.projectName],
  ['connection_id', 'string', ({ line }) => line.connectionId],
  ['asset_type', 'string', ({ asset }) => asset.assetType],
  ['mime_type', 'string', ({ asset }) => asset.mimeType],
  ['tags', 'array<string>', ({ asset }) => asset.tags],
  ['size', 'bigint', ({ asset }) => asset.size],
  ['duration', 'double', ({ asset }) => asset.duration],
  ['width', 'bigint', ({ asset }) => asset.width],
  ['height', 'bigint', ({ asset }) => asset.height],
  ['uploaded_at', 'timestamp', ({ line }) => line.uploadDate],
  ['state', 'string', ({ line }) => line.state],
  ['skipped', 'boolean', ({ asset }) => asset.skipped],
  ['reason', 'string', ({ line }) => line.reason],
  ['mirrored_at', 'timestamp', ({ line }) => line.mirroredAt],
  ['verified_at', 'timestamp', ({ line }) => line.verifiedAt],
  ['gone_at', 'timestamp', ({ asset }) => asset.goneAt],
  ['stored_bytes', 'bigint', storedBytes],
  ['media_bytes', 'bigint', (row) => mediaOf(row)?.bytes],
  ['media_key', 'string', (row) => mediaOf(row)?.key],
  ['variant', 'string', (row) => mediaOf(row)?.variant],
  ['crc32', 'string', (row) => mediaOf(row)?.checksums.crc32],
  ['md5', 'string', (row) => mediaOf(row)?.checksums.md5],
  ['etag', 'string', (row) => mediaOf(row)?.etag],
  ['record_key', 'string', (row) => keysOf(row, 'record')[0]],
  ['thumbnail_state', 'string', ({ line }) => line.thumbnail],
  ['thumbnail_key', 'string', (row) => keysOf(row, 'thumbnail')[0]],
  ['transcript_state', 'string', ({ line }) => line.transcript],
  ['transcript_keys', 'array<string>', (row) => keysOf(row, 'transcript')],
  ['sha256', 'string', (row) => mediaOf(row)?.checksums.sha256],
  ['reason_code', 'string', ({ line }) => line.reasonCode],
];

const schema: SchemaElement[] = [
  { name: 'asset', num_children: columns.length },
  ...columns.flatMap(([name, type]): SchemaElement[] => {
    const column: SchemaElement = { name, repetition_type: 'OPTIONAL', ...types[type][0] };
    if (type !== 'array<string>') return [column];
    const list: SchemaElement = { name: 'list', repetition_type: 'REPEATED', num_children: 1 };
    return [column, list, { name: 'element', repetition_type: 'REQUIRED', ...types.string[0] }];
  }),
];

/**
 * The rows of one Parquet file. Holds the values of `rowGroupSize` rows, and the compressed bytes of the others. The end of a row group
 * blocks the process, for about 35 µs per row.
 */
export class InventoryTable {
  readonly #rowGroupSize: number;
  readonly #writer = new ByteWriter();
  readonly #file = new ParquetWriter({ writer: this.#writer, schema });
  readonly #chunks: Uint8Array[] = [];
  #data: unknown[][] = columns.map(() => []);

  constructor(rowGroupSize: number) {
    this.#rowGroupSize = rowGroupSize;
  }

  add(row: Row): void {
    for (const [index, [, type, of]] of columns.entries()) this.#data[index]!.push(types[type][1](of(row)));
    if (this.#data[0]!.length === this.#rowGroupSize) this.#endRowGroup();
  }

  /** The content of the file. */
  finish(): Uint8Array[] {
    this.#endRowGroup();
    this.#file.finish();
    this.#takeBytes();
    return this.#chunks;
  }

  #endRowGroup(): void {
    const columnData = columns.map(([name], index) => ({ name, data: this.#data[index]! }));
    this.#file.write({ columnData, rowGroupSize: this.#rowGroupSize });
    this.#data = columns.map(() => []);
    this.#takeBytes();
  }

  /** Takes the bytes after each row group, so that the writer's buffer stays small. */
  #takeBytes(): void {
    this.#chunks.push(new Uint8Array(this.#writer.getBuffer()));
    this.#writer.index = 0;
  }
}

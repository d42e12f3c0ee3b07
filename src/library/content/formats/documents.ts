import { crc32, deflateRawSync } from 'node:zlib';

/** A PDF with forty lines of text per page. */
export function pdf(title: string, lines: string[]): Buffer {
  const pages = Array.from({ length: Math.ceil(lines.length / 40) || 1 }, (_, i) => lines.slice(i * 40, i * 40 + 40));
  const pageNumber = (i: number) => 4 + i * 2;
  const objects = [
    '<< /Type /Catalog /Pages 2 0 R >>',
    `<< /Type /Pages /Kids [${pages.map((_, i) => `${pageNumber(i)} 0 R`).join(' ')}] /Count ${pages.length} >>`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>',
    ...pages.flatMap((page, i) => {
      const text = [title, '', ...page].map((line) => `(${escaped(line)}) Tj T*`).join('\n');
      const content = `BT /F1 12 Tf 16 TL 72 770 Td\n${text}\nET`;
      return [
        `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents ${pageNumber(i) + 1} 0 R ` +
          '/Resources << /Font << /F1 3 0 R >> >> >>',
        `<< /Length ${Buffer.byteLength(content, 'latin1')} >>\nstream\n${content}\nendstream`,
      ];
    }),
  ];
  let file = '%PDF-1.4\n%\xe2\xe3\xcf\xd3\n';
  const offsets = objects.map((object, i) => {
    const offset = file.length;
    file += `${i + 1} 0 obj\n${object}\nendobj\n`;
    return offset;
  });
  const table = offsets.map((offset) => `${String(offset).padStart(10, '0')} 00000 n \n`).join('');
  const xref = `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${table}`;
  const trailer = `trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${file.length}\n%%EOF\n`;
  return Buffer.from(file + xref + trailer, 'latin1');
}

function escaped(text: string): string {
  return text.replace(/[\\()]/g, '\\$&').replace(/[^\x20-\xff]/g, '?');
}

export type ZipEntry = { name: string; data: Buffer };

// 2025-09-01, as MS-DOS writes it.
const MADE_AT = { time: 0, date: 0x5b21 };
const UTF8_NAMES = 0x0800;

/** A ZIP file, as section 4.3 of PKWARE's APPNOTE.TXT describes it. */
export function zip(entries: ZipEntry[]): Buffer {
  const files: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const { name, data } of entries) {
    const path = Buffer.from(name);
    const packed = deflateRawSync(data);
    const fields = Buffer.alloc(26);
    fields.writeUInt16LE(20, 0);
    fields.writeUInt16LE(UTF8_NAMES, 2);
    fields.writeUInt16LE(8, 4);
    fields.writeUInt16LE(MADE_AT.time, 6);
    fields.writeUInt16LE(MADE_AT.date, 8);
    fields.writeUInt32LE(crc32(data), 10);
    fields.writeUInt32LE(packed.length, 14);
    fields.writeUInt32LE(data.length, 18);
    fields.writeUInt16LE(path.length, 22);
    const file = Buffer.concat([Buffer.from('PK\x03\x04'), fields, path, packed]);
    const rest = Buffer.alloc(14);
    rest.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from('PK\x01\x02\x14\x00'), fields, rest, path]));
    files.push(file);
    offset += file.length;
  }
  const listing = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.write('PK\x05\x06');
  end.writeUInt16LE(entries.length, 8);
  end.writeUInt16LE(entries.length, 10);
  end.writeUInt32LE(listing.length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...files, listing, end]);
}

/** A minimal file that word processors open. */
export function docx(paragraphs: string[]): Buffer {
  const head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n';
  const main = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml';
  const schema = 'http://schemas.openxmlformats.org';
  const text = paragraphs.map((paragraph) => `<w:p><w:r><w:t>${xml(paragraph)}</w:t></w:r></w:p>`).join('');
  const files = {
    '[Content_Types].xml': `<Types xmlns="${schema}/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml" ContentType="${main}"/></Types>`,
    '_rels/.rels': `<Relationships xmlns="${schema}/package/2006/relationships"><Relationship Id="rId1" Type="${schema}/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>`,
    'word/document.xml': `<w:document xmlns:w="${schema}/wordprocessingml/2006/main"><w:body>${text}</w:body></w:document>`,
  };
  return zip(Object.entries(files).map(([name, content]) => ({ name, data: Buffer.from(head + content) })));
}

function xml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

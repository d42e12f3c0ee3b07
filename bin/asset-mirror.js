#!/usr/bin/env node
import { existsSync } from 'node:fs';

if (Number(process.versions.node.split('.')[0]) < 24) {
  process.stderr.write(`asset-mirror: this is Node ${process.versions.node}; it needs Node 24 or a later one\n`);
  process.exit(2);
}
// A clone is run from its source; the package holds what was built of it.
const source = new URL('../src/main.ts', import.meta.url);
await import(existsSync(source) ? source.href : new URL('../dist/main.js', import.meta.url).href);

import { run } from '../../src/command.ts';

// `asset-mirror` with other timings. They come before its own arguments.
const [timings] = process.argv.splice(2, 1);
await run({ timings: JSON.parse(timings!) });

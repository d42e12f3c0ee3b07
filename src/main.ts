#!/usr/bin/env node
import { run } from './command.ts';

await run();

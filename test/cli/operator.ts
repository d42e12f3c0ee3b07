import { execFile } from 'node:child_process';
import type { Scene } from '../support/scene.ts';
import { spawned } from '../support/spawned.ts';

/** The environment of an operator of the mirror of this scene. */
export const clientOf = (scene: Scene) => ({
  ...spawned,
  ASSET_MIRROR_URL: scene.ground.publicUrl,
  ADMIN_TOKEN: 'the-token-of-the-operators',
});

/** Runs a command as an operator of the mirror of this scene. */
export function runIn(scene: Scene, args: string[], environment: Record<string, string> = {}) {
  const env = { ...clientOf(scene), ...environment };
  return new Promise<{ code: number; stdout: string; stderr: string }>((resolve) => {
    execFile(process.execPath, ['src/main.ts', ...args], { env }, (error, stdout, stderr) =>
      resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
    );
  });
}

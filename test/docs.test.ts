import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';

const pages = globSync(['*.md', '{docs,ops,helm,bench,test,src}/**/*.md']);

/** The names by which GitHub links to the headings of a page. */
function anchorsOf(page: string): string[] {
  const text = readFileSync(page, 'utf8').replaceAll(/^( *)```[\s\S]*?^\1```/gm, '');
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, title]) =>
    title!
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-'),
  );
}

test.each(pages)('%s: every link leads to a file and a heading that exist', (page) => {
  const links = [...readFileSync(page, 'utf8').matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => link!);
  const broken = links.filter((link) => {
    if (/^[a-z]+:/.test(link)) return false;
    const [path, anchor] = link.split('#');
    const target = path ? join(dirname(page), path) : page;
    return !existsSync(target) || (anchor !== undefined && !anchorsOf(target).includes(anchor));
  });
  expect(broken).toEqual([]);
});

test('every address of the documentation in code and rules leads to a heading that exists', () => {
  const address = /https:\/\/github\.com\/asset-mirror\/asset-mirror\/blob\/main\/([\w./-]+\.md)#([\w-]+)/g;
  const files = globSync(['{src,ops,helm}/**/*.{ts,js,yml,yaml,json,tpl}']);
  const links = files.flatMap((file) => [...readFileSync(file, 'utf8').matchAll(address)]);
  expect(links.length).toBeGreaterThan(10);
  for (const [link, page = '', anchor] of links) expect(anchorsOf(page), link).toContain(anchor);
});

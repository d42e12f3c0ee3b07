import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../database/schema.ts';

/** A line in which something was said. */
export interface Hit {
  startMs: number;
  text: string;
  /** Where each matching word begins and ends in `text`. */
  marks: [number, number][];
}

/** Around each matching word in an answer of the database. No line contains control characters. */
const markStart = '\u0001';
const markEnd = '\u0002';

/**
 * Some lines of each of these assets in which this was said: those of the first passages that match. A phrase may begin in a line
 * and end in one of the next two. Passages overlap, so a line may be there twice.
 */
export async function hits(
  db: Database,
  { said, assetIds, each }: { said: string; assetIds: string[]; each: number },
): Promise<(Hit & { assetId: string })[]> {
  if (assetIds.length === 0) return [];
  const options = `HighlightAll=true, StartSel=${markStart}, StopSel=${markEnd}`;
  const isSaid = (lines: RawBuilder<unknown>) =>
    sql`to_tsvector(p.language, array_to_string(${lines}, ' ')) @@ p.any_of`;
  const { rows } = await sql<{ assetId: string; startMs: number; text: string }>`
    SELECT asked.id AS asset_id, hit.start_ms, hit.text
    FROM unnest(${assetIds}::text[]) AS asked (id) CROSS JOIN LATERAL (
      SELECT p.starts[at] AS start_ms, CASE WHEN has.own THEN marked.lines[at] ELSE array_to_string(marked.lines[at:at + 2], ' ') END AS text
      FROM (
        SELECT p.language::regconfig AS language, p.starts, p.lines,
          -- The words of the query, joined by "or"; words that must not be said are omitted.
          replace(querytree(wanted), ' & ', ' | ')::tsquery AS any_of, strpos(wanted::text, '<') > 0 AS has_phrase
        FROM transcript_passages p CROSS JOIN LATERAL websearch_to_tsquery(p.language::regconfig, ${said}) AS wanted
        WHERE p.asset_id = asked.id AND p.words @@ wanted ORDER BY p.number LIMIT ${each}
      ) AS p CROSS JOIN LATERAL (
        SELECT string_to_array(ts_headline(p.language, array_to_string(p.lines, E'\\n'), p.any_of, ${options}), E'\\n') AS lines
        -- Otherwise the planner would compute the headline again for each line.
        OFFSET 0
      ) AS marked CROSS JOIN LATERAL generate_subscripts(p.lines, 1) AS at CROSS JOIN LATERAL (
        SELECT NOT p.has_phrase OR ${isSaid(sql`p.lines[at:at]`)} AS own
      ) AS has
      -- A headline marks the words of a phrase also in lines that do not say the phrase.
      WHERE strpos(marked.lines[at], ${markStart}) > 0
        AND (has.own OR ${isSaid(sql`p.lines[at:at + 2]`)} AND NOT ${isSaid(sql`p.lines[at + 1:at + 2]`)})
      LIMIT ${2 * each}
    ) AS hit`.execute(db);
  return rows.map(({ text, ...line }) => ({ ...line, ...marked(text) }));
}

/** The text without the marks, and where they were. */
function marked(text: string): { text: string; marks: [number, number][] } {
  const marks: [number, number][] = [];
  let plain = '';
  for (const part of text.split(markStart)) {
    const [word, rest] = part.split(markEnd);
    if (rest !== undefined) marks.push([plain.length, plain.length + word!.length]);
    plain += word! + (rest ?? '');
  }
  return { text: plain, marks };
}

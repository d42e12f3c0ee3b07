"""Checks a copy that asset-mirror made, offline. Needs Python 3.11 and OpenSSL 3 only. FINGERPRINT: of the operator's key.
  python3 verify.py DIRECTORY [FINGERPRINT]           signatures, chain, inventories, every object, every byte
  python3 verify.py proof FILE [MEDIA] [FINGERPRINT]  a proof made by `asset-mirror attest --asset`, and a file against it"""
import collections, datetime, glob, gzip, hashlib, json, os, re, subprocess, sys, tempfile, zlib
problems = collections.Counter()
def report(what, key, day, why=None):  # `day`: the last one for which a signed manifest proves the earlier state
    problems[what] += 1
    print(f"{what}{f' after {day}' if day else ''}: {repr(key)[1:-1]}{f' ({why})' if why else ''}")
def parsed(text):  # a JSON object. Anything may be in the bucket
    try: return dict(json.loads(text))
    except (ValueError, TypeError, RecursionError): return {}
def load(path): return parsed(open(path, "rb").read(1 << 24)) if os.path.isfile(path) else {}
def encoded(text): return str(text).encode(errors="replace")
def sha(*parts): return hashlib.sha256(b"".join(parts)).digest()
leaf, node = (lambda line: sha(b"\0", line)), (lambda left, right: sha(b"\1", left, right))
def root_of(hashes):  # RFC 6962, section 2.1
    if len(hashes) < 2: return hashes[0] if hashes else sha()
    middle = 1 << ((len(hashes) - 1).bit_length() - 1)
    return node(root_of(hashes[:middle]), root_of(hashes[middle:]))
def difference(entry, path):  # between a file and what was signed of it: what it is, and why
    blocks, length, crc = [], 0, 0
    if not os.path.isfile(path): return "missing", None
    for block in iter(lambda file=open(path, "rb"): file.read(16 << 20), b""):
        blocks.append(sha(block)); length += len(block); crc = zlib.crc32(block, crc)
    hash = root_of(blocks).hex() + (f"-{len(blocks)}" if len(blocks) > 1 else "")
    for name, found in ("bytes", length), ("sha256", hash), ("crc32", f"{crc:08x}"):
        if entry[name] not in (None, found): return "altered", f"has {name} {found}, but {entry[name]} was signed"
    return (None, None) if entry["sha256"] else ("unproven", "no content hash was signed")
def openssl(command, **more): return subprocess.run(["openssl", *command.split()], capture_output=True, **more)
def fingerprint(pem): return sha(openssl("pkey -pubin -outform DER", input=encoded(pem)).stdout).hex()
def verifies(pem, text, signature):
    if not pem: return False
    with tempfile.TemporaryDirectory() as at:
        contents = {"key": encoded(pem), "text": encoded(text), "sig": openssl("base64 -d -A", input=encoded(signature)).stdout}
        for name, content in contents.items(): open(f"{at}/{name}", "wb").write(content)
        return openssl("pkeyutl -verify -pubin -rawin -inkey key -in text -sigfile sig", cwd=at).returncode == 0
def is_signed(link, keys): return verifies(keys.get(str(link.get("keyId"))), link.get("manifest"), link.get("signature"))
def trusted_by(first, keys):  # the trusted key, and each key that a trusted one has signed
    print(f"Trusted key: {first}. Compare it with the fingerprint that you got from the operator.")
    known = {key["keyId"]: key for key in keys if key.get("keyId") == fingerprint(key.get("publicKey"))}
    found = {first: known[first]["publicKey"]} if first in known else (first and report("missing", f"_mirror/keys/{first}.json", None)) or {}
    for id, key in [*known.items()] * len(known):
        statement = {**parsed(json.dumps(key.get("signedBy"))), "manifest": f"key of asset-mirror {id}\n"}
        if is_signed(statement, found): found[id] = key["publicKey"]
    return found
def proven_manifests(at, key):
    paths, name = sorted(glob.glob(f"_mirror/manifests/{'[0-9]' * 8}.json", root_dir=at)), "_mirror/manifests/{:08}.json".format
    links, proven, day = {int(path[-13:-5]): load(f"{at}/{path}") for path in paths}, {}, None
    last = next((link["keyId"] for link in reversed(links.values()) if link.get("keyId")), None)
    keys = trusted_by(key or last, [load(f"{at}/{path}") for path in glob.glob("_mirror/keys/*.json", root_dir=at)])
    for number, link in reversed(links.items()):  # the next one has the hash of this one, or this one is signed
        later, hash, content = proven.get(number + 1), sha(encoded(link.get("manifest"))).hex(), parsed(link.get("manifest"))
        is_proven = content.get("number") == number and (later[1]["previous"] == hash if later else is_signed(link, keys))
        if is_proven: proven[number] = (hash, content)
    for before, number in zip([0, *links], links):
        if number > before + 1: report("missing", " to ".join(map(name, sorted({before + 1, number - 1}))), day)
        if number in proven: day = proven[number][1]["day"]
        else: report("altered", name(number), day, "or not signed by a trusted key")
    return list(reversed(proven.values()))
def is_intact(at, hash, manifest, is_last):  # whether the inventory is as it was signed. Past ones may have been deleted
    folder, before = f"_mirror/inventory/{manifest['day']}", problems.total()
    files = manifest["files"] + manifest["parquet"] + [manifest["tombstones"], {"name": "manifest.json", "sha256": hash}]
    sums = "".join(f"{file['sha256']}  {file['name']}\n" for file in files)  # this file is written last
    if not os.path.exists(f"{at}/{folder}/SHA256SUMS"): return is_last and report("missing", f"{folder}/", manifest["day"])
    for file in [*files, {"name": "SHA256SUMS", "sha256": sha(encoded(sums)).hex()}]:
        path = f"{at}/{folder}/{file['name']}"
        found = hashlib.file_digest(open(path, "rb"), "sha256").hexdigest() if os.path.isfile(path) else None
        if found != file["sha256"]: report("altered" if found else "missing", f"{folder}/{file['name']}", manifest["day"])
    return problems.total() == before
def lines(at, manifest):
    for file in manifest["files"] + [manifest["tombstones"]]:
        with gzip.open(f"{at}/_mirror/inventory/{manifest['day']}/{file['name']}") as lines: yield from (line[:-1] for line in lines)
def check_objects(at, manifest):
    day, known, now = manifest["day"], set(), datetime.datetime.now(datetime.UTC).isoformat()
    def is_newer(path, name, time=r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"):
        return re.fullmatch(time, found := str(load(f"{at}/{path}").get(name))) and manifest["writtenAt"] < found <= now
    def is_excused(what, entry, line):  # being replaced while the inventory was written, or changed or removed later
        tombstone, media = f"_mirror/tombstones/{sha(line['id'].encode()).hex()}.json", (line["objects"] or [entry])[0]["key"]
        is_due = min(entry.get("until") or "9", line["removedAt"] or "9") <= now or is_newer(tombstone, "erasedAt")
        by_part = (glob.glob(f"_mirror/versions/{glob.escape(part)}/*.json", root_dir=at) for part in media.split("/"))  # one is the id
        is_changed = is_newer(f"{media}.asset.json", "writtenAt") or any(is_newer(path, "replacedAt") for paths in by_part for path in paths)
        return line["state"] == "transferring" or is_changed or what == "missing" and is_due
    if root_of([*map(leaf, lines(at, manifest))]).hex() != manifest["root"]: report("altered", f"the entries of {day}", day)
    for line in filter(lambda line: "id" in line, map(json.loads, lines(at, manifest))):
        kept = [{**entry, "until": version["expiresAt"]} for version in line["versions"] for entry in version["objects"]]
        for entry in (entry for entry in line["objects"] + kept if "versionId" not in entry):  # a download has no versions
            known.add(entry["key"])
            what, why = difference(entry, f"{at}/{entry['key']}")
            if what in ("missing", "altered") and is_excused(what, entry, line): what, why = "unproven", "changed or removed on purpose after the inventory"
            if what: report(what, entry["key"], day, why)
    for key in (os.path.relpath(os.path.join(folder, name), at) for folder, _, names in os.walk(at) for name in names):
        if key in known or key.startswith(("_mirror/", ".asset-mirror-tmp/")): continue
        endings = "", r"\.[^.]*", r"\.[^.]*\.[^.]*"  # of a sidecar
        is_new = any(is_newer(f"{re.sub(f'{ending}$', '', key)}.asset.json", "writtenAt") for ending in endings)
        report("unproven" if is_new else "extra", key, day, "changed or removed on purpose after the inventory" if is_new else None)
    return len(known)
def check(at, key=None):
    proven, last, before = proven_manifests(at, key), None, set()
    by_day = {manifest["day"]: hash for hash, manifest in proven}  # of several on a day, the last one
    for path in {*glob.glob("_mirror/inventory/*", root_dir=at)} - {f"_mirror/inventory/{day}" for day in by_day}: report("extra", f"{path}/", None)
    for hash, manifest in (each for each in proven if by_day[each[1]["day"]] == each[0]):
        if not is_intact(at, hash, manifest, manifest is proven[-1][1]): before = set(); continue
        now = {line.get("id") or line["erased"] for line in map(json.loads, lines(at, manifest))}  # the gone and erased may leave
        for id in before - now - {id for id in before if sha(id.encode()).hex() in now}: report("missing", f"asset {id} in the inventory", last["day"])
        last, before = manifest, {each["id"] for each in map(json.loads, lines(at, manifest)) if each.get("objects") and each["state"] != "gone"}
    count = check_objects(at, last) if last else report("missing", "an intact signed inventory", None)
    print(f"Not as it was signed, or not proven: {dict(problems)}" if problems else f"All {count} objects are as signed {last['day']}.")
def check_proof(path, *more):
    proof, key = load(path) or sys.exit(f"no proof: {path}"), next((each for each in more if re.fullmatch("[0-9a-f]{64}", each)), "")
    link, entry, hash = proof["manifest"], json.loads(proof["entry"]), leaf(proof["entry"].encode())
    manifest, trusted = json.loads(link["manifest"]), trusted_by(key or link["keyId"], proof["keys"])
    for side, other in proof["path"]: hash = node(bytes.fromhex(other), hash) if side == "left" else node(hash, bytes.fromhex(other))
    if hash.hex() != manifest["root"] or not is_signed(link, trusted): report("altered", "entry or manifest", manifest["day"])
    for media in (each for each in more if each != key):
        what, why = difference(entry["objects"][0], media) if entry["objects"] else ("extra", "the entry has no file")
        if what: report(what, media, manifest["day"], why)
    if not problems: print(f"{manifest['day']}: {entry['id']} was {entry['state']}, {json.dumps(entry['objects'][:1])}")
at = sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__)
check_proof(*sys.argv[2:]) if at == "proof" else check(at.rstrip("/"), *map(str.lower, sys.argv[2:])) if os.path.isdir(at) else sys.exit(f"no such directory: {at}")
sys.exit(1 if problems else 0)

"""Checks a copy that asset-mirror made, offline. Needs Python 3.11 and OpenSSL 3 only. FINGERPRINT: of the operator's key.
  python3 verify.py DIRECTORY [FINGERPRINT]           signatures, chain, inventories, every object, every byte
  python3 verify.py proof FILE [MEDIA] [FINGERPRINT]  a proof made by `asset-mirror attest --asset`, and a file against it"""
import collections, datetime, glob, gzip, hashlib, json, os, re, subprocess, sys, tempfile, zlib
problems = collections.Counter()
def report(what, key, day, why=None):  # `day`: the last one for which a signed manifest proves the earlier state
    problems[what] += 1
    print(f"{what}{f' after {day}' if day else ''}: {key}{f' ({why})' if why else ''}")
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
    with open(path, "rb") as file:
        while block := file.read(16 << 20): blocks.append(sha(block)); length += len(block); crc = zlib.crc32(block, crc)
    hash = root_of(blocks).hex() + (f"-{len(blocks)}" if len(blocks) > 1 else "")
    for name, found in ("bytes", length), ("crc32", f"{crc:08x}"), ("sha256", hash):
        if entry[name] not in (None, found): return "altered", f"{name} {found}, {entry[name]} was signed"
    return None, None
def openssl(command, **more): return subprocess.run(["openssl", *command.split()], capture_output=True, **more)
def fingerprint(pem): return sha(openssl("pkey -pubin -outform DER", input=encoded(pem)).stdout).hex()
def verifies(pem, text, signature):
    with tempfile.TemporaryDirectory() as at:
        contents = {"key": encoded(pem), "text": encoded(text), "sig": openssl("base64 -d -A", input=encoded(signature)).stdout}
        for name, content in contents.items(): open(f"{at}/{name}", "wb").write(content)
        return openssl("pkeyutl -verify -pubin -rawin -inkey key -in text -sigfile sig", cwd=at).returncode == 0
def is_signed(link, keys): return verifies(keys.get(str(link.get("keyId"))), link.get("manifest"), link.get("signature"))
def trusted_by(first, keys):  # the trusted key, and each key that a trusted one has signed
    print(f"Trusted key: {first}. Compare it with the fingerprint that you got from the operator.")
    known = {key["keyId"]: key for key in keys if key.get("keyId") == fingerprint(key.get("publicKey"))}
    found = {first: known[first]["publicKey"]} if first in known else {}
    for id, key in [*known.items()] * len(known):
        statement = {**parsed(json.dumps(key.get("signedBy"))), "manifest": f"key of asset-mirror {id}\n"}
        if is_signed(statement, found): found[id] = key["publicKey"]
    return found
def proven_manifests(at, key):
    paths, name = sorted(glob.glob(f"{at}/_mirror/manifests/{'[0-9]' * 8}.json")), "_mirror/manifests/{:08}.json".format
    links, proven, day = {int(path[-13:-5]): load(path) for path in paths}, {}, None
    last = next((link["keyId"] for link in reversed(links.values()) if link.get("keyId")), None)
    keys = trusted_by(key or last, map(load, glob.glob(f"{at}/_mirror/keys/*.json")))
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
def check_objects(at, manifest):  # returns how many were not compared
    day, now, known, newer, unproven = manifest["day"], datetime.datetime.now(datetime.UTC).isoformat(), set(), 0, 0
    def is_newer(path, time): return manifest["writtenAt"] < str(load(f"{at}/{path}").get(time)) <= now
    def is_excused(line, media):  # written, replaced or erased later, or being replaced while the inventory was written
        hash, versions = sha(line["id"].encode()).hex(), glob.glob(f"_mirror/versions/{glob.escape(line['id'])}/*.json", root_dir=at)
        if line["state"] == "transferring" or is_newer(f"{media}.asset.json", "writtenAt"): return True
        return is_newer(f"_mirror/tombstones/{hash}.json", "erasedAt") or any(is_newer(path, "replacedAt") for path in versions)
    if root_of([*map(leaf, lines(at, manifest))]).hex() != manifest["root"]: report("altered", f"the entries of {day}", day)
    for line in filter(lambda line: "id" in line, map(json.loads, lines(at, manifest))):
        kept = [{**entry, "until": version["expiresAt"]} for version in line["versions"] for entry in version["objects"]]
        for entry in (entry for entry in line["objects"] + kept if "versionId" not in entry):  # a download has no versions
            known.add(entry["key"]); unproven += entry["sha256"] is None
            what, why = difference(entry, f"{at}/{entry['key']}")
            is_due = what == "missing" and min(entry.get("until") or "9", line["removedAt"] or "9") <= now
            if is_due or what and is_excused(line, (line["objects"] or [entry])[0]["key"]): newer += 1
            elif what: report(what, entry["key"], day, why)
    for key in (os.path.relpath(os.path.join(folder, name), at) for folder, _, names in os.walk(at) for name in names):
        if key in known or key.startswith(("_mirror/", ".asset-mirror-tmp/")): continue
        media = [key] + [key[:dot.start()] for dot in re.finditer(r"\.", key)]  # a sidecar has the key of its media, a dot and more
        if any(is_newer(f"{each}.asset.json", "writtenAt") for each in media): newer += 1
        else: report("extra", key, day)
    print(f"{len(known)} objects compared with the inventory of {day}; {newer} are newer than it, {unproven} have no content hash.")
    return newer + unproven
def check(at, key=None):
    proven, last, before = proven_manifests(at, key), None, set()
    by_day = {manifest["day"]: (hash, manifest) for hash, manifest in proven}  # of several on a day, the last one
    for day in {os.path.basename(path) for path in glob.glob(f"{at}/_mirror/inventory/*")} - by_day.keys():
        report("extra", f"_mirror/inventory/{day}/", None)
    for day, (hash, manifest) in by_day.items():
        if not is_intact(at, hash, manifest, manifest is proven[-1][1]): continue
        now = {line.get("id") or line["erased"] for line in map(json.loads, lines(at, manifest))}
        for id in before - now:  # an asset may leave if it was gone or erased
            if sha(id.encode()).hex() not in now: report("missing", f"asset {id} in the inventory", last["day"])
        last, before = manifest, {each["id"] for each in map(json.loads, lines(at, manifest)) if each.get("objects") and each["state"] != "gone"}
    left = check_objects(at, last) if last else report("missing", "an intact signed inventory", None)
    print(f"Problems: {dict(problems)}" if problems else "No problem found." if left else "All is as it was signed.")
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
if len(sys.argv) < 2: sys.exit(__doc__)
check_proof(*sys.argv[2:]) if sys.argv[1] == "proof" else check(sys.argv[1].rstrip("/"), *map(str.lower, sys.argv[2:]))
sys.exit(1 if problems else 0)

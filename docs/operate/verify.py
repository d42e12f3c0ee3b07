"""Checks a copy that asset-mirror made, offline. Needs Python 3.11 and OpenSSL 3 only. FINGERPRINT: the key to trust.
  python3 verify.py DIRECTORY [FINGERPRINT]           signatures, chain, inventories, every object, every byte
  python3 verify.py proof FILE [MEDIA] [FINGERPRINT]  a proof made by `asset-mirror attest --asset`, and a file against it"""
import base64, collections, datetime, glob, gzip, hashlib, json, os, re, subprocess, sys, tempfile, zlib
problems = collections.Counter()
def report(what, key, day, why=None):  # `day`: the last one of which a signed manifest proves something else
    problems[what] += 1
    print(f"{what} {f'after {day}' if day else 'before the first signed day'}: {key}{f' ({why})' if why else ''}")
def load(path):
    try: return json.load(open(path, encoding="utf-8"))
    except (OSError, ValueError): return {}

def sha(*parts): return hashlib.sha256(b"".join(parts)).digest()
leaf, node = (lambda line: sha(b"\0", line)), (lambda left, right: sha(b"\1", left, right))
def root_of(hashes):  # RFC 6962, section 2.1
    stack = []
    for count, hash in ((1, each) for each in hashes):
        while stack and stack[-1][0] == count: count, hash = 2 * count, node(stack.pop()[1], hash)
        stack.append((count, hash))
    hash = stack.pop()[1] if stack else sha()
    while stack: hash = node(stack.pop()[1], hash)
    return hash
def difference(entry, path):  # what a file has instead of what an inventory says of it
    blocks, length, crc = [], 0, 0
    with open(path, "rb") as file:
        while block := file.read(16 << 20): blocks.append(sha(block)); length += len(block); crc = zlib.crc32(block, crc)
    hash = root_of(blocks).hex() + (f"-{len(blocks)}" if len(blocks) > 1 else "")
    for name, found in ("bytes", length), ("crc32", f"{crc:08x}"), ("sha256", hash):
        if entry[name] not in (None, found): return f"{name} {found}, {entry[name]} was signed"
def fingerprint(pem): return sha(base64.b64decode(re.sub("-----.*?-----|\n", "", pem))).hex()
def verifies(pem, text, signature):
    with tempfile.TemporaryDirectory() as at:
        for name, content in ("key", pem.encode()), ("text", text.encode()), ("sig", base64.b64decode(signature or "")):
            with open(f"{at}/{name}", "wb") as file: file.write(content)
        command = "openssl pkeyutl -verify -pubin -rawin -inkey key -in text -sigfile sig"
        return subprocess.run(command.split(), cwd=at, capture_output=True).returncode == 0
def trusted_by(first, keys):  # the trusted key, and each key that a trusted one has signed
    print(f"Trusted key: {first}. Compare it with the fingerprint that you got from the operator.")
    known = {key["keyId"]: key for key in keys if key and fingerprint(key["publicKey"]) == key["keyId"]}
    found = {first: known[first]["publicKey"]} if first in known else {}
    for id, by, pem in [(key["keyId"], key["signedBy"] or {}, key["publicKey"]) for key in known.values()] * len(known):
        if verifies(found.get(by.get("keyId"), ""), f"key of asset-mirror {id}\n", by.get("signature")): found[id] = pem
    return found
def is_signed(link, keys): return link.get("keyId") in keys and verifies(keys[link["keyId"]], link["manifest"], link["signature"])
def proven_manifests(at, key):
    paths, day, later, number = sorted(glob.glob(f"{at}/_mirror/manifests/*.json")), None, None, 0
    links = [{"manifest": "{}", **load(path)} for path in paths]
    keys = trusted_by(key or (links[-1].get("keyId") if links else None), map(load, glob.glob(f"{at}/_mirror/keys/*.json")))
    for link in reversed(links):  # each contains the hash of the one before
        link["hash"] = sha(link["manifest"].encode()).hex()
        link["proven"] = later == link["hash"] or is_signed(link, keys)
        later = json.loads(link["manifest"])["previous"] if link["proven"] else None
    for path, link in zip(paths, links):
        while (number := number + 1) < int(os.path.basename(path)[:8]): report("missing", f"_mirror/manifests/{number:08}.json", day)
        if link["proven"]: day = json.loads(link["manifest"])["day"]
        else: report("altered", os.path.relpath(path, at), day, "or not signed by a trusted key")
    return [(link["hash"], json.loads(link["manifest"])) for link in links if link["proven"]]
def is_intact(at, hash, manifest, is_last):  # whether the inventory is as it was signed. Past ones may have been deleted
    folder, before = f"_mirror/inventory/{manifest['day']}", problems.total()
    if not os.path.exists(f"{at}/{folder}/manifest.json") and not is_last: return False
    files = manifest["files"] + manifest["parquet"] + [manifest["tombstones"], {"name": "manifest.json", "sha256": hash}]
    for path, signed in ((f"{folder}/{file['name']}", file["sha256"]) for file in files):
        if not os.path.exists(f"{at}/{path}"): report("missing", path, manifest["day"])
        elif hashlib.file_digest(open(f"{at}/{path}", "rb"), "sha256").hexdigest() != signed: report("altered", path, manifest["day"])
    return problems.total() == before
def lines(at, manifest):
    for file in manifest["files"] + [manifest["tombstones"]]:
        with gzip.open(f"{at}/_mirror/inventory/{manifest['day']}/{file['name']}") as content: yield from (line[:-1] for line in content)
def check_objects(at, manifest):
    day, known, newer, unproven = manifest["day"], set(), 0, 0
    now = datetime.datetime.now(datetime.UTC).isoformat()
    erased = {json.loads(line)["erased"] for line in lines(at, {**manifest, "files": []})}
    def is_newer(path, time): return manifest["writtenAt"] < load(f"{at}/{path}").get(time, "") <= now
    if root_of(map(leaf, lines(at, manifest))).hex() != manifest["root"]: report("altered", f"the entries of {day}", day, "Merkle root")
    for line in filter(lambda line: "id" in line, map(json.loads, lines(at, manifest))):
        kept = [{**entry, "until": version["expiresAt"]} for version in line["versions"] for entry in version["objects"]]
        for entry in (entry for entry in line["objects"] + kept if "versionId" not in entry):  # a download has no versions
            known.add(entry["key"])
            unproven += entry["sha256"] is None
            path = f"{at}/{entry['key']}"
            why = difference(entry, path) if os.path.exists(path) else "missing"
            hash, media = sha(line["id"].encode()).hex(), (line["objects"] or [entry])[0]["key"]
            expired = why == "missing" and (entry.get("until") or "9") <= now
            erased_later = hash in erased or is_newer(f"_mirror/tombstones/{hash}.json", "erasedAt")
            if why and (expired or erased_later or is_newer(f"{media}.asset.json", "mirroredAt")): newer += 1
            elif why: report("missing" if why == "missing" else "altered", entry["key"], day, why)
    for key in (os.path.relpath(os.path.join(folder, name), at) for folder, _, names in os.walk(at) for name in names):
        if key in known or key.startswith(("_mirror/", ".asset-mirror-tmp/")): continue
        ends = [len(key)] + [i for i, c in enumerate(key) if c == "."]  # the key of a sidecar is that of its media, a dot and more
        if any(is_newer(f"{key[:end]}.asset.json", "mirroredAt") for end in ends): newer += 1
        else: report("extra", key, day)
    print(f"{len(known)} objects compared with the inventory of {day}; {newer} are newer than it, {unproven} have no content hash.")

def check(at, key=None):
    proven, last, before = proven_manifests(at, key), None, set()
    by_day = {manifest["day"]: (hash, manifest) for hash, manifest in proven}  # of several on a day, the last one
    for day in os.listdir(f"{at}/_mirror/inventory") if os.path.isdir(f"{at}/_mirror/inventory") else []:
        if day not in by_day: report("extra", f"_mirror/inventory/{day}/", None)
    for day, (hash, manifest) in by_day.items():
        if not is_intact(at, hash, manifest, manifest is proven[-1][1]): continue
        now = {}  # states by id, and the hashes of erased ids
        for line in map(json.loads, lines(at, manifest)): now[line.get("id") or line["erased"]] = line.get("state")
        for id in before - now.keys():  # who leaves was gone in the library, or erased
            if sha(id.encode()).hex() not in now: report("missing", f"asset {id} in the inventory", last["day"])
        last, before = manifest, {id for id, state in now.items() if state not in (None, "gone")}
    check_objects(at, last) if last else report("missing", "an inventory that is signed", None)
def check_proof(path, *more):
    proof, key = load(path), next((each for each in more if re.fullmatch("[0-9a-f]{64}", each)), None)
    link, entry, hash = proof["manifest"], json.loads(proof["entry"]), leaf(proof["entry"].encode())
    manifest, trusted = json.loads(link["manifest"]), trusted_by(key or link["keyId"], proof["keys"])
    for side, other in proof["path"]:
        hash = node(bytes.fromhex(other), hash) if side == "left" else node(hash, bytes.fromhex(other))
    if hash.hex() != manifest["root"] or not is_signed(link, trusted): report("altered", "the entry or the manifest", manifest["day"])
    for media in (each for each in more if each != key):
        if why := difference(entry["objects"][0], media): report("altered", media, manifest["day"], why)
    print(f"{manifest['day']}: {entry['id']} was {entry['state']}, {json.dumps(entry['objects'][:1])}")

check_proof(*sys.argv[2:]) if sys.argv[1] == "proof" else check(sys.argv[1].rstrip("/"), *sys.argv[2:])
print(f"Not as it was signed: {dict(problems)}" if problems else "All is as it was signed.")
sys.exit(1 if problems else 0)

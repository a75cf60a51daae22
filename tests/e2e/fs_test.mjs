// The filesystem API as node.js has it, on a directory that is given.
// usage: node fs_test.mjs DIRECTORY
// Prints a line per test; exits with 1 if one failed.
import assert from 'node:assert/strict';
import { createReadStream, createWriteStream, readFileSync, watch, writeFileSync } from 'node:fs';
import * as fs from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';

const base = path.resolve(process.argv[2]);
const tests = new Map();
const test = (name, body) => tests.set(name, body);
const fails = (code, promise) => assert.rejects(promise, { code });

test('write, append, read', async () => {
	await fs.writeFile('f', 'one');
	await fs.appendFile('f', ' two');
	assert.equal(await fs.readFile('f', 'utf8'), 'one two');
	writeFileSync('f', 'sync', { flag: 'a' });
	assert.equal(readFileSync('f', 'utf8'), 'one twosync');
	await fails('EEXIST', fs.writeFile('f', '', { flag: 'wx' }));
	await fails('ENOENT', fs.readFile('none'));
	await fails('ENOENT', fs.writeFile('none', '', { flag: 'r+' }));
	await fails('EISDIR', fs.readFile('.'));
	await fs.writeFile('empty', '');
	assert.equal((await fs.readFile('empty')).length, 0);
});

test('file handles', async () => {
	const f = await fs.open('f', 'w+');
	try {
		await f.write(Buffer.from('hello world'));
		await f.write(Buffer.from('W'), 0, 1, 6);
		const { bytesRead, buffer } = await f.read(Buffer.alloc(20), 0, 20, 6);
		assert.equal(buffer.subarray(0, bytesRead).toString(), 'World');
		await f.truncate(5);
		await f.sync();
		await f.datasync();
		assert.equal((await f.stat()).size, 5);
		await f.chmod(0o640);
		await f.utimes(1000, 2000.5);
		await f.writev([Buffer.from('!'), Buffer.from('?')], 5);
	} finally {
		await f.close();
	}
	assert.equal(await fs.readFile('f', 'utf8'), 'hello!?');
	assert.equal((await fs.stat('f')).mode & 0o777, 0o640);
});

test('streams', async () => {
	const pieces = Array.from({ length: 40 }, (_, i) => Buffer.alloc(65537, i));
	await pipeline(pieces, createWriteStream('a'));
	await pipeline(createReadStream('a'), createWriteStream('b'));
	assert.ok((await fs.readFile('b')).equals(Buffer.concat(pieces)));
	const part = [];
	for await (const piece of createReadStream('a', { start: 65530, end: 65549 })) part.push(piece);
	assert.ok(Buffer.concat(part).equals(Buffer.concat(pieces).subarray(65530, 65550)));
	await pipeline([Buffer.from('XY')], createWriteStream('b', { flags: 'r+', start: 10 }));
	assert.equal((await fs.readFile('b')).subarray(9, 13).toString('hex'), '00585900');
	// one that nobody reads to its end
	const stream = createReadStream('a');
	for await (const piece of stream) {
		assert.ok(piece.length > 0);
		break;
	}
	assert.ok(stream.destroyed);
});

test('directories', async () => {
	await fs.mkdir('a/b/c', { recursive: true });
	await fs.mkdir('a/b/c', { recursive: true });
	await fails('EEXIST', fs.mkdir('a'));
	await fails('ENOENT', fs.mkdir('x/y'));
	await fs.writeFile('a/b/f', 'f');
	await fails('ENOTEMPTY', fs.rmdir('a/b'));
	await fails('ENOTDIR', fs.readdir('a/b/f'));
	await fails('ENOTDIR', fs.mkdir('a/b/f/g'));
	const made = await fs.mkdtemp('tmp-');
	assert.match(made, /^tmp-.{6}$/);
	const names = [];
	for await (const entry of await fs.opendir('a/b'))
		names.push([entry.name, entry.isDirectory(), entry.isFile()]);
	assert.deepEqual(names.sort(), [['c', true, false], ['f', false, true]]);
	await fs.rm('a', { recursive: true });
	await fails('ENOENT', fs.stat('a'));
	await fs.rmdir(made);
	assert.deepEqual(await fs.readdir('.'), []);
});

test('copy, rename, remove', async () => {
	await fs.mkdir('d');
	await fs.writeFile('d/f', 'x'.repeat(300000), { mode: 0o750 });
	await fs.symlink('f', 'd/l');
	await fs.copyFile('d/f', 'g');
	assert.equal((await fs.stat('g')).size, 300000);
	await fails('EEXIST', fs.copyFile('d/f', 'g', fs.constants.COPYFILE_EXCL));
	await fs.cp('d', 'e', { recursive: true, preserveTimestamps: true });
	assert.equal((await fs.readFile('e/f')).length, 300000);
	assert.equal((await fs.stat('e/f')).mode & 0o777, 0o750);
	await fs.rename('e', 'h');
	await fs.rename('g', 'h/f');
	await fails('ENOENT', fs.rename('none', 'x'));
	await fails('ENOTEMPTY', fs.rename('d', 'h'));
	await fails('EISDIR', fs.rename('h/f', 'd'));
	await fs.unlink('h/l');
	await fails('ENOENT', fs.unlink('h/l'));
	await fs.rm('h', { recursive: true, force: true });
	await fs.rm('none', { force: true });
	await fails('ENOENT', fs.rm('none'));
});

test('attributes', async () => {
	await fs.writeFile('f', 'x');
	await fs.chmod('f', 0o604);
	await fs.utimes('f', 1111111111, 1222222222.5);
	let st = await fs.stat('f', { bigint: true });
	assert.equal(st.mode & 0o777n, 0o604n);
	assert.equal(st.mtimeNs, 1222222222500000000n);
	assert.equal(st.nlink, 1n);
	await fs.link('f', 'g');
	st = await fs.stat('f', { bigint: true });
	assert.equal(st.nlink, 2n);
	assert.equal(st.ino, (await fs.stat('g', { bigint: true })).ino);
	await fs.truncate('f', 10);
	assert.ok((await fs.readFile('g')).equals(Buffer.from('x' + '\0'.repeat(9))));
	await fs.access('f', fs.constants.R_OK | fs.constants.W_OK);
	await fails('ENOENT', fs.access('none'));
	await fs.chown('f', process.getuid(), process.getgid());
	await fails('EPERM', fs.chown('f', process.getuid() + 1, process.getgid()));
	assert.equal((await fs.lstat('f')).isFile(), true);
	if (fs.statfs) assert.ok((await fs.statfs('.')).blocks > 0);
});

test('links', async () => {
	await fs.mkdir('d');
	await fs.writeFile('d/f', 'x');
	await fs.symlink('d/f', 'l');
	assert.equal(await fs.readlink('l'), 'd/f');
	assert.equal(await fs.realpath('l'), path.resolve('d/f'));
	assert.equal((await fs.lstat('l')).isSymbolicLink(), true);
	await fs.writeFile('l', 'through');
	assert.equal(await fs.readFile('d/f', 'utf8'), 'through');
	await fails('EINVAL', fs.readlink('d/f'));
	await fs.symlink('a', 'b');
	await fs.symlink('b', 'a');
	await fails('ELOOP', fs.readFile('a'));
});

test('names that are no text', async () => {
	const name = Buffer.from([0x66, 0xff, 0x20, 0x0a, 0xfe]);
	await fs.writeFile(name, 'x');
	const names = await fs.readdir('.', { encoding: 'buffer' });
	assert.equal(names.length, 1);
	assert.ok(names[0].equals(name));
	assert.equal(await fs.readFile(name, 'utf8'), 'x');
	await fs.unlink(name);
});

test('many at once', async () => {
	const all = Array.from({ length: 64 }, (_, i) => i);
	await Promise.all(all.map((i) => fs.writeFile(`f${i}`, `${i}`.repeat(i * 100))));
	const read = await Promise.all(all.map((i) => fs.readFile(`f${i}`, 'utf8')));
	all.forEach((i) => assert.equal(read[i], `${i}`.repeat(i * 100)));
	assert.equal((await fs.readdir('.')).length, 64);
	await Promise.all(all.map((i) => fs.unlink(`f${i}`)));
	assert.deepEqual(await fs.readdir('.'), []);
});

test('a watcher hears of changes through the mount', async () => {
	const heard = new Promise((resolve) => {
		const watcher = watch('.', (event, name) => {
			if (name !== 'f') return;
			watcher.close();
			resolve(event);
		});
	});
	await fs.writeFile('f', 'x');
	assert.match(await heard, /rename|change/);
});

let failed = 0;
for (const [name, body] of tests) {
	const dir = path.join(base, name.replace(/[^a-z]+/g, '-'));
	await fs.mkdir(dir);
	process.chdir(dir);
	try {
		await body();
		console.log(`ok: ${name}`);
	} catch (error) {
		failed++;
		console.log(`FAILED: ${name}: ${error.stack}`);
	}
	process.chdir('/');
}
process.exit(failed ? 1 : 0);

/**
 * Finds the gradlint to start.  Knows nothing of the editor.
 *
 * An unrelated package on PyPI is called gradlint too, with the same command and the same import name.  So what is found
 * by its name is asked who it is before it is started as a server.
 */

import { execFile, type ExecFileException } from 'node:child_process';
import { access, constants } from 'node:fs/promises';
import * as path from 'node:path';

/** A program and the arguments that come before gradlint's own. */
export interface Command {
    readonly file: string;
    readonly args: readonly string[];
}

/** Where gradlint may be, and in which words to tell the user of it. */
export interface Place {
    readonly what: string;
    readonly commands: readonly Command[];
}

/** A gradlint that has a server. */
export interface Gradlint extends Command {
    readonly version: string;
    readonly place: string;
}

/** A place where gradlint was looked for in vain, and why what is there would not do. */
export interface Attempt {
    readonly place: string;
    readonly why: readonly string[];
}

const WINDOWS = process.platform === 'win32';
const EXECUTABLES = WINDOWS ? 'Scripts' : 'bin';
const NAMES = ['gradlint-torch', 'gradlint'];
const PYTHONS = WINDOWS ? ['python'] : ['python3', 'python'];

/** How long a program may take to say who it is: a first import from a cold disk is slow. */
const PATIENCE = 30_000;

export function spelled(command: Command): string {
    return [command.file, ...command.args].join(' ');
}

/** The folder in which a virtual environment keeps its executables. */
export function executables(environment: string): string {
    return path.join(environment, EXECUTABLES);
}

/** gradlint as installed beside an interpreter.  The interpreter itself comes last: it may lack the module. */
export function beside(interpreter: string): Command[] {
    return [...scripts(path.dirname(interpreter)), { file: interpreter, args: ['-m', 'gradlint'] }];
}

/** gradlint in a virtual environment; nothing where there is no environment. */
export async function inEnvironment(environment: string): Promise<Command[]> {
    const interpreter = path.join(executables(environment), named('python'));
    return (await runs(interpreter)) ? beside(interpreter) : [];
}

/** gradlint on the PATH.  Relative entries of it are left out: they would mean a folder of the workspace. */
export async function onPath(PATH: string): Promise<Command[]> {
    const folders = PATH.split(path.delimiter).filter((folder) => path.isAbsolute(folder));
    const commands = folders.flatMap(scripts);
    for (const name of PYTHONS) {
        for (const folder of folders) {
            const interpreter = path.join(folder, named(name));
            if (await runs(interpreter)) {
                commands.push({ file: interpreter, args: ['-m', 'gradlint'] });
                break;
            }
        }
    }
    return commands;
}

/**
 * The first gradlint that can be a server, in the order of `places`, and all that was tried before it.
 *
 * @param cwd a folder with no Python in it: `python -m` would import what lies there.
 */
export async function find(
    places: readonly Place[],
    cwd: string,
): Promise<{ found: Gradlint | undefined; attempts: Attempt[] }> {
    const attempts: Attempt[] = [];
    for (const place of places) {
        const why: string[] = [];
        for (const command of place.commands) {
            if (path.isAbsolute(command.file) && !(await runs(command.file))) {
                continue;
            }
            const answer = await ask(command, cwd);
            if (typeof answer === 'object') {
                return { found: { ...command, ...answer, place: place.what }, attempts };
            }
            why.push(`${spelled(command)}: ${answer}`);
        }
        if (why.length === 0) {
            const [only, ...others] = place.commands;
            why.push(only !== undefined && others.length === 0 ? `no program ${only.file}` : 'nothing there');
        }
        attempts.push({ place: place.what, why });
    }
    return { found: undefined, attempts };
}

/** The version of a gradlint that has a server, or in words why this is none. */
async function ask(command: Command, cwd: string): Promise<{ version: string } | string> {
    const [name, server] = await Promise.all([
        answer(command, ['--version'], cwd),
        answer(command, ['server', '--help'], cwd),
    ]);
    const version = /^gradlint (\d\S*)/.exec(name.stdout)?.[1];
    if (version === undefined) {
        return name.failure ?? 'it is another program: `--version` does not name gradlint';
    }
    if (server.failure !== undefined) {
        return `version ${version} has no server: another package of this name, or an old gradlint-torch (${server.failure})`;
    }
    return { version };
}

function answer(
    command: Command,
    args: readonly string[],
    cwd: string,
): Promise<{ stdout: string; failure: string | undefined }> {
    return new Promise((resolve) => {
        execFile(
            command.file,
            [...command.args, ...args],
            { cwd, timeout: PATIENCE, windowsHide: true },
            (error, stdout, stderr) => {
                resolve({ stdout, failure: error === null ? undefined : (lastLine(stderr) ?? ended(error)) });
            },
        );
    });
}

function ended(error: ExecFileException): string {
    if (error.killed === true) {
        return `no answer within ${PATIENCE / 1000} s`;
    }
    return typeof error.code === 'number' ? `exit code ${error.code}` : error.message;
}

/** The last line that says something. */
export function lastLine(text: string): string | undefined {
    return text
        .split(/\r?\n/)
        .map((line) => line.trim())
        .filter((line) => /\w/.test(line))
        .at(-1);
}

function scripts(folder: string): Command[] {
    return NAMES.map((name) => ({ file: path.join(folder, named(name)), args: [] }));
}

function named(program: string): string {
    return WINDOWS ? `${program}.exe` : program;
}

async function runs(file: string): Promise<boolean> {
    try {
        await access(file, constants.X_OK);
        return true;
    } catch {
        return false;
    }
}

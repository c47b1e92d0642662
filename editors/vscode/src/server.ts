/** gradlint's language server: found, started, watched, and started again when it ends unasked. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import * as path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import * as vscode from 'vscode';
import {
    CloseAction,
    DidChangeConfigurationNotification,
    ErrorAction,
    LanguageClient,
    type LanguageClientOptions,
} from 'vscode-languageclient/node';

import {
    beside,
    executables,
    find,
    type Attempt,
    type Gradlint,
    inEnvironment,
    lastLine,
    onPath,
    type Place,
    spelled,
} from './find';
import { selectedInterpreter } from './python';
import { chosen, enabled, SECTION, told } from './settings';
import { TraceChannel } from './trace';

/** How the server is, as the status bar tells it. */
export type State =
    | { readonly kind: 'off' }
    | { readonly kind: 'starting' }
    | { readonly kind: 'ready'; readonly gradlint: Gradlint }
    | { readonly kind: 'stopped'; readonly why: string };

/** A server that ends this often within these milliseconds is not started again. */
const CRASHES = 4;
const CRASH_WINDOW = 180_000;

const ENVIRONMENTS = ['.venv', 'venv'];

/** What a server that ended had left to say. */
const LAST_WORDS = 20;

class Client extends LanguageClient {
    /** Whoever starts the client tells the user what went wrong, once and with a way out: the log has the rest. */
    override error(message: string, data?: unknown, showNotification?: boolean | 'force'): void {
        super.error(message, data, showNotification === 'force' ? false : showNotification);
    }
}

export class Server implements vscode.Disposable {
    readonly output = vscode.window.createOutputChannel('gradlint', { log: true });
    private readonly trace = new TraceChannel();
    private readonly changed = new vscode.EventEmitter<State>();
    readonly onDidChange = this.changed.event;

    private current: State = { kind: 'off' };
    private client: Client | undefined;
    private turns: Promise<void> = Promise.resolve();
    private crashes: number[] = [];

    constructor(private readonly context: vscode.ExtensionContext) {}

    get state(): State {
        return this.current;
    }

    /** Starts, restarts or stops the server, as the settings want it now. */
    restart(): Promise<void> {
        this.crashes = [];
        return this.again();
    }

    /** Starts the server anew if another gradlint would be found now than the one that runs. */
    async reconsider(): Promise<void> {
        const running = this.current.kind === 'ready' ? this.current.gradlint : undefined;
        if (running !== undefined) {
            const { found } = await this.search();
            if (found !== undefined && spelled(found) === spelled(running)) {
                return;
            }
        }
        await this.restart();
    }

    /** Tells the server of its settings; a server that starts later is told at its start. */
    async configure(): Promise<void> {
        await this.client?.sendNotification(DidChangeConfigurationNotification.type, { settings: { gradlint: told() } });
    }

    /** Has the server execute one of its commands, which the language client has registered with the editor. */
    async execute(command: string, ...args: unknown[]): Promise<void> {
        if (this.client !== undefined) {
            await vscode.commands.executeCommand(command, ...args);
        }
    }

    /** A diagnostic as the server knows it, with the data that it attached. */
    protocolDiagnostic(diagnostic: vscode.Diagnostic): unknown {
        return this.client?.code2ProtocolConverter.asDiagnostic(diagnostic);
    }

    protocolUri(uri: vscode.Uri): string {
        return this.client?.code2ProtocolConverter.asUri(uri) ?? uri.toString();
    }

    async stop(): Promise<void> {
        await this.inTurn(() => this.end());
        this.become({ kind: 'off' });
    }

    dispose(): void {
        this.trace.dispose();
        this.output.dispose();
        this.changed.dispose();
    }

    /** A start waits until the stop before it is done, whoever asked for them. */
    private inTurn(action: () => Promise<void>): Promise<void> {
        this.turns = this.turns.then(action, action);
        return this.turns;
    }

    private again(): Promise<void> {
        return this.inTurn(async () => {
            await this.end();
            if (!enabled()) {
                this.become({ kind: 'off' });
                return;
            }
            try {
                await this.begin();
            } catch (error) {
                this.output.error(error instanceof Error ? error : String(error));
                this.stopped(String(error));
            }
        });
    }

    private async end(): Promise<void> {
        const client = this.client;
        this.client = undefined;
        if (client !== undefined) {
            try {
                await client.dispose();
            } catch (error) {
                this.output.warn(`the server did not stop as it should: ${String(error)}`);
            }
        }
    }

    private async begin(): Promise<void> {
        this.become({ kind: 'starting' });
        const { found, attempts } = await this.search();
        for (const attempt of attempts) {
            this.output.info(`not in ${attempt.place}: ${attempt.why.join('; ')}`);
        }
        if (found === undefined) {
            this.stopped('gradlint was not found');
            void this.tellMissing(attempts);
            return;
        }
        this.output.info(`starting ${spelled(found)} server (version ${found.version}, from ${found.place})`);
        const child = new Child();
        const client: Client = new Client(
            SECTION,
            'gradlint',
            async () => child.start(found, await this.folder(), await this.environment()),
            this.options(() => {
                if (this.client === client) {
                    this.client = undefined;
                    void this.crashed(child);
                }
            }),
        );
        try {
            await client.start();
            this.client = client;
            this.become({ kind: 'ready', gradlint: found });
        } catch (error) {
            const why = (await child.lastWords()) ?? `the server did not start: ${String(error)}`;
            this.stopped(why);
            void this.tellStopped(why);
        }
    }

    private options(closed: () => void): LanguageClientOptions {
        return {
            documentSelector: [
                { language: 'python', scheme: 'file' },
                { language: 'python', scheme: 'untitled' },
                { language: 'python', scheme: 'vscode-notebook-cell' },
                { language: 'python', notebook: 'jupyter-notebook' },
            ],
            // From version 10 on the client pulls the diagnostics of cells.  Pushed too, they would be counted twice.
            initializationOptions: () => ({ notebookPull: true, gradlint: told() }),
            outputChannel: this.output,
            traceOutputChannel: this.trace,
            initializationFailedHandler: () => false,
            errorHandler: {
                error: () => ({ action: ErrorAction.Continue, handled: true }),
                closed: () => {
                    closed();
                    return { action: CloseAction.DoNotRestart, handled: true };
                },
            },
            markdown: { supportHtml: false },
            middleware: {
                executeCommand: async (command, args, next) => {
                    if (command === 'gradlint.confirm' && !vscode.workspace.isTrusted) {
                        void vscode.window.showWarningMessage(
                            'gradlint: to confirm a finding is to run the program: trust this workspace first.',
                        );
                        return undefined;
                    }
                    return (await next(command, args)) as unknown;
                },
                window: {
                    showDocument: async (params, token, next) => {
                        const uri = vscode.Uri.parse(params.uri);
                        if (params.external === true || !uri.path.endsWith('.md')) {
                            return next(params, token);
                        }
                        // A rule's page is there to be read.
                        await vscode.commands.executeCommand('markdown.showPreviewToSide', uri);
                        return { success: true };
                    },
                },
            },
        };
    }

    private async crashed(child: Child): Promise<void> {
        const why = (await child.lastWords()) ?? 'the server ended';
        const now = Date.now();
        this.crashes = [...this.crashes, now].filter((time) => now - time < CRASH_WINDOW);
        this.output.error(`the server ended unasked: ${why}`);
        if (this.crashes.length < CRASHES) {
            await this.again();
        } else {
            this.stopped(why);
            await this.tellStopped(`the server ended ${CRASHES} times in ${CRASH_WINDOW / 60_000} minutes: ${why}`);
        }
    }

    private async search(): Promise<{ found: Gradlint | undefined; attempts: Attempt[] }> {
        return find(await this.places(), await this.folder());
    }

    /** Where gradlint may be.  Nothing of a workspace that is not trusted is started. */
    private async places(): Promise<Place[]> {
        const setting = chosen();
        if (setting !== undefined) {
            return [{ what: 'the setting gradlint.path', commands: [setting] }];
        }
        const places: Place[] = [];
        if (vscode.workspace.isTrusted) {
            const interpreter = await selectedInterpreter(vscode.workspace.workspaceFolders?.[0]?.uri);
            if (interpreter !== undefined) {
                places.push({ what: 'the selected interpreter', commands: beside(interpreter) });
            }
            for (const folder of vscode.workspace.workspaceFolders ?? []) {
                for (const name of ENVIRONMENTS) {
                    const commands = await inEnvironment(path.join(folder.uri.fsPath, name));
                    places.push({ what: `${name} of the workspace folder ${folder.name}`, commands });
                }
            }
        }
        places.push({ what: 'the PATH', commands: await onPath(process.env['PATH'] ?? '') });
        return places;
    }

    /** The server's environment: as in a terminal where the program's own environment is active, which confirm needs. */
    private async environment(): Promise<NodeJS.ProcessEnv> {
        if (!vscode.workspace.isTrusted) {
            return process.env;
        }
        const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
        const interpreter = await selectedInterpreter(folder);
        const active = interpreter === undefined ? await this.ownEnvironment(folder) : path.dirname(interpreter);
        return active === undefined
            ? process.env
            : { ...process.env, PATH: `${active}${path.delimiter}${process.env['PATH'] ?? ''}` };
    }

    private async ownEnvironment(folder: vscode.Uri | undefined): Promise<string | undefined> {
        for (const name of folder === undefined ? [] : ENVIRONMENTS) {
            const environment = path.join(folder?.fsPath ?? '', name);
            if ((await inEnvironment(environment)).length > 0) {
                return executables(environment);
            }
        }
        return undefined;
    }

    /** A folder of our own to start in: `python -m gradlint` imports from where it starts, so not from a workspace. */
    private async folder(): Promise<string> {
        const folder = this.context.globalStorageUri.fsPath;
        await mkdir(folder, { recursive: true });
        return folder;
    }

    private async tellMissing(attempts: readonly Attempt[]): Promise<void> {
        // What was found first and would not do says most; the output has the rest.
        const tried = attempts.map(({ place, why }) => `${place} (${why[0] ?? 'nothing'})`).join('; ');
        const untrusted = vscode.workspace.isTrusted ? '' : ' Nothing of this workspace was tried: it is not trusted.';
        const choice = await vscode.window.showErrorMessage(
            `gradlint was not found. Tried: ${tried}.${untrusted}`,
            'Install Instructions',
            'Set Path',
        );
        if (choice === 'Install Instructions') {
            await this.showInstructions();
        } else if (choice === 'Set Path') {
            await vscode.commands.executeCommand('workbench.action.openSettings', 'gradlint.path');
        }
    }

    /** The extension's README says how to install gradlint.  The packer writes its name in small letters. */
    private async showInstructions(): Promise<void> {
        const folder = this.context.extensionUri;
        const names = (await vscode.workspace.fs.readDirectory(folder)).map(([name]) => name);
        const readme = names.find((name) => name.toLowerCase() === 'readme.md') ?? 'README.md';
        await vscode.commands.executeCommand('markdown.showPreview', vscode.Uri.joinPath(folder, readme));
    }

    private async tellStopped(why: string): Promise<void> {
        const choice = await vscode.window.showErrorMessage(why, 'Show Output', 'Restart');
        if (choice === 'Show Output') {
            this.output.show();
        } else if (choice === 'Restart') {
            await this.restart();
        }
    }

    private stopped(why: string): void {
        this.become({ kind: 'stopped', why });
    }

    private become(state: State): void {
        this.current = state;
        this.changed.fire(state);
    }
}

/** The server's process, and what it says when it gives up. */
class Child {
    private process: ChildProcess | undefined;
    private closed: Promise<unknown> = Promise.resolve();
    private words: string[] = [];

    async start(gradlint: Gradlint, cwd: string, env: NodeJS.ProcessEnv): Promise<ChildProcess> {
        const child = spawn(gradlint.file, [...gradlint.args, 'server'], { cwd, env, windowsHide: true });
        this.process = child;
        this.closed = once(child, 'close');
        child.stderr.on('data', (data: Buffer) => {
            this.words = [...this.words, ...data.toString().split(/\r?\n/)].slice(-LAST_WORDS);
        });
        await once(child, 'spawn');
        return child;
    }

    /** The last line on stderr, or how the process ended; undefined while it runs. */
    async lastWords(): Promise<string | undefined> {
        // The end of the connection is seen before the end of the process, and may be all that there is.
        await Promise.race([this.closed, setTimeout(1000)]);
        const { exitCode = null, signalCode = null } = this.process ?? {};
        if (exitCode === null && signalCode === null) {
            return undefined;
        }
        return lastLine(this.words.join('\n')) ?? `the server ended with ${signalCode ?? `exit code ${exitCode}`}`;
    }
}

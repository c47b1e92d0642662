;;; eglot.el --- Checks what Emacs shows of a file  -*- lexical-binding: t -*-

;; Loaded after the settings of the README.  The file is named by the environment; its `# want NAME at TEXT' marks say
;; what must be shown.  An error ends a batch Emacs with an exit code that is not 0.

(require 'eglot)
(load (expand-file-name "marks" (file-name-directory load-file-name)) nil t)

(defun check-shown ()
  "What Flymake shows, in the same form."
  (sort (cl-loop for one in (flymake-diagnostics)
                 for data = (alist-get 'eglot-lsp-diag (eglot--diag-data one))
                 do (cl-assert (equal (plist-get data :source) "gradlint"))
                 collect (list (plist-get data :code) (flymake-diagnostic-beg one) (flymake-diagnostic-end one)))
        (lambda (one other) (< (cadr one) (cadr other)))))

(defun check-settle (what)
  "Wait until what is shown is what is wanted; WHAT has been done.
Idle timers, which send edits and show diagnostics, do not fire in a batch Emacs."
  (eglot--signal-textDocument/didChange)
  (let ((end (+ (float-time) 60)))
    (while (and (not (equal (check-shown) (check-wanted))) (< (float-time) end))
      (accept-process-output nil 0.1)
      (flymake-start)))
  (unless (equal (check-shown) (check-wanted))
    (error "%s: want %S, got %S" what (check-wanted) (check-shown))))

(find-file (getenv "GRADLINT_TEST_FILE"))
;; `eglot-ensure' waits for the end of the command, and there is none.
;; After three seconds it waits in the background.
(run-hooks 'post-command-hook)
(let ((end (+ (float-time) 60)))
  (while (and (not (eglot-current-server)) (< (float-time) end))
    (accept-process-output nil 0.1)))
(cl-assert (eglot-current-server) nil "no server runs")
(check-settle "opened")

;; The message, and the rule's page on hover.
(let* ((one (cl-find "saved-tensor-mutated" (flymake-diagnostics)
                     :key (lambda (one)
                            (plist-get (alist-get 'eglot-lsp-diag (eglot--diag-data one)) :code))
                     :test #'equal)))
  (cl-assert (string-match-p "instead: " (flymake-diagnostic-text one)))
  (goto-char (flymake-diagnostic-beg one))
  (let ((hover (jsonrpc-request (eglot-current-server) :textDocument/hover (eglot--TextDocumentPositionParams))))
    (cl-assert (string-match-p "kept for backward here" (plist-get (plist-get hover :contents) :value)))))

;; Edits.
(check-replace "y.add_(1)  # want saved-tensor-mutated at y.add_(1)"
               "y.mul_(2)  # want saved-tensor-mutated at y.mul_(2)")
(check-settle "edited")
(check-replace "label = '🔥é'" "label = 'é🔥🔥'")
(check-settle "moved")

;; All safe repairs.
(check-replace "  # want live-graph-kept at losses.append(loss)" "")
(eglot--signal-textDocument/didChange)
(eglot--apply-workspace-edit
 (plist-get (car (eglot-code-actions (point-min) (point-max) "source.fixAll.gradlint")) :edit))
(check-settle "repaired")
(check-replace "losses.append(loss.detach())" "losses.append(loss.detach()) ")

;; A code action.
(goto-char (point-min))
(search-forward "x.abs()")
(let ((allow (cl-find "Allow dropped-result here" (eglot-code-actions (match-beginning 0) (match-end 0))
                      :key (lambda (action) (plist-get action :title)) :test #'equal)))
  (cl-assert allow nil "no action to allow it")
  (eglot--apply-workspace-edit (plist-get allow :edit)))
(goto-char (point-min))
(search-forward "# gradlint: allow[dropped-result]")
(check-replace "# want dropped-result at x.abs()" "")
(check-settle "allowed")
(set-buffer-modified-p nil)
(eglot-shutdown (eglot-current-server))
(kill-emacs 0)
;;; eglot.el ends here

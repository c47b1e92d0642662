;;; lsp_mode.el --- Checks what lsp-mode shows of a file  -*- lexical-binding: t -*-

;; As eglot.el, for the other client.  It counts columns in characters, whatever was agreed on: so what it is tested
;; with has no character outside of the Basic Multilingual Plane before a finding.

(require 'lsp-mode)
(require 'lsp-diagnostics)
(load (expand-file-name "marks" (file-name-directory load-file-name)) nil t)

(defun check-diagnostics ()
  "The diagnostics of the buffer."
  (gethash (lsp--fix-path-casing buffer-file-name) (lsp-diagnostics t)))

(defun check-shown ()
  "What lsp-mode knows, in the same form."
  (sort (mapcar (lambda (one)
                  (cl-assert (equal (lsp:diagnostic-source? one) "gradlint"))
                  (let ((range (lsp:diagnostic-range one)))
                    (list (lsp:diagnostic-code? one)
                          (lsp--position-to-point (lsp:range-start range))
                          (lsp--position-to-point (lsp:range-end range)))))
                (check-diagnostics))
        (lambda (one other) (< (cadr one) (cadr other)))))

(defun check-settle (what)
  "Wait until what is shown is what is wanted; WHAT has been done.  Idle timers do not fire in a batch Emacs."
  (when lsp--delay-timer (cancel-timer lsp--delay-timer))
  (lsp--flush-delayed-changes)
  (let ((end (+ (float-time) 60)))
    (while (and (not (equal (check-shown) (check-wanted))) (< (float-time) end))
      (accept-process-output nil 0.1)))
  (unless (equal (check-shown) (check-wanted))
    (error "%s: want %S, got %S" what (check-wanted) (check-shown))))

(setq lsp-auto-guess-root t
      lsp-restart 'ignore
      lsp-enable-snippet nil
      lsp-headerline-breadcrumb-enable nil
      lsp-client-packages nil)
(find-file (getenv "GRADLINT_TEST_FILE"))
(let ((end (+ (float-time) 60)))
  (while (and (null (lsp-workspaces)) (< (float-time) end))
    (accept-process-output nil 0.1)))
(cl-assert (lsp-workspaces) nil "no server runs")
(check-settle "opened")

;; The message, the chain of reasons, and the rule's page on hover.
(let ((one (cl-find "saved-tensor-mutated" (check-diagnostics) :key #'lsp:diagnostic-code? :test #'equal)))
  (cl-assert (string-match-p "instead: " (lsp:diagnostic-message one)))
  (cl-assert (= 3 (length (lsp:diagnostic-related-information? one))))
  (goto-char (lsp--position-to-point (lsp:range-start (lsp:diagnostic-range one))))
  (let ((hover (lsp-request "textDocument/hover" (lsp--text-document-position-params))))
    (cl-assert (string-match-p "kept for backward here" (lsp:markup-content-value (lsp:hover-contents hover))))))

;; Edits.
(check-replace "y.add_(1)  # want saved-tensor-mutated at y.add_(1)"
               "y.mul_(2)  # want saved-tensor-mutated at y.mul_(2)")
(check-settle "edited")
(check-replace "label = " "other_label = ")
(check-settle "moved")

;; All safe repairs.
(check-replace "  # want live-graph-kept at losses.append(loss)" "")
(lsp--flush-delayed-changes)
(lsp-execute-code-action-by-kind "source.fixAll.gradlint")
(check-settle "repaired")
(check-replace "losses.append(loss.detach())" "losses.append(loss.detach()) ")

;; A code action.
(goto-char (point-min))
(search-forward "x.abs()")
(goto-char (match-beginning 0))
(let ((allow (cl-find "Allow dropped-result here" (lsp-code-actions-at-point)
                      :key #'lsp:code-action-title :test #'equal)))
  (cl-assert allow nil "no action to allow it")
  (lsp-execute-code-action allow))
(goto-char (point-min))
(search-forward "# gradlint: allow[dropped-result]")
(check-replace "# want dropped-result at x.abs()" "")
(check-settle "allowed")
(set-buffer-modified-p nil)
(lsp-workspace-shutdown (car (lsp-workspaces)))
(kill-emacs 0)
;;; lsp_mode.el ends here

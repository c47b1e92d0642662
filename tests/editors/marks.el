;;; marks.el --- What the marks of a file ask for  -*- lexical-binding: t -*-

(require 'cl-lib)

(defun check-wanted ()
  "What the marks ask for: names, and where the text of each begins and ends."
  (save-excursion
    (goto-char (point-min))
    (cl-loop while (re-search-forward "# want \\([[:alnum:]-]+\\) at \\(.*\\)$" nil t)
             for name = (match-string-no-properties 1)
             for text = (match-string-no-properties 2)
             collect (save-excursion
                       (beginning-of-line)
                       (search-forward text)
                       (list name (match-beginning 0) (match-end 0))))))

(defun check-replace (old new)
  "Replace the one OLD by NEW."
  (goto-char (point-min))
  (search-forward old)
  (replace-match new t t))
;;; marks.el ends here

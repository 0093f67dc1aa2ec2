// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const requirementsFile = "docs/requirements.md"

// textFiles calls f with every text file of the repository that people read.
func textFiles(t *testing.T, f func(path string, content []byte)) {
	t.Helper()

	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin" || entry.Name() == "node_modules") {
			return filepath.SkipDir
		}

		switch filepath.Ext(path) {
		case ".go", ".md", ".sh", ".yaml", ".yml", ".txtar", ".py":
		default:
			return nil
		}

		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		relative, err := filepath.Rel(root, path)
		f(filepath.ToSlash(relative), content)

		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReferencesResolve fails for a reference to something that is not in the repository: a row of a list of requirements
// that docs/requirements.md does not have, an issue by its number, or a folder next to the repository.
func TestReferencesResolve(t *testing.T) {
	row := regexp.MustCompile(`\bS[1-5]\.[0-9]+\b`)
	defined := regexp.MustCompile(`(?m)^\| (S[1-5]\.[0-9]+) \|`)
	outside := regexp.MustCompile(`\.\./shared\b|\bissue [0-9]+\b|\bstyle guide\b|\(D[0-9]{1,2}\)|user-complaints`)

	requirements, err := os.ReadFile(filepath.Join(root, requirementsFile))
	if err != nil {
		t.Fatal(err)
	}

	known := map[string]bool{}
	for _, match := range defined.FindAllSubmatch(requirements, -1) {
		known[string(match[1])] = true
	}

	if len(known) == 0 {
		t.Fatalf("%s defines no row", requirementsFile)
	}

	textFiles(t, func(path string, content []byte) {
		if strings.HasPrefix(path, "internal/repocheck/") || strings.HasPrefix(path, "test/referencedata/data/") {
			return
		}

		lines := bufio.NewScanner(bytes.NewReader(content))
		lines.Buffer(nil, 1<<20)

		for number := 1; lines.Scan(); number++ {
			for _, r := range row.FindAllString(lines.Text(), -1) {
				if !known[r] {
					t.Errorf("%s:%d: %s is not a row of %s: add it there, or write the fact instead", path, number, r, requirementsFile)
				}
			}

			if found := outside.FindString(lines.Text()); found != "" {
				t.Errorf("%s:%d: %q refers to nothing in this repository: write the fact instead", path, number, found)
			}
		}
	})
}

// TestRequirementsAreCited fails for a row of docs/requirements.md that nothing cites: the page has what tests and design
// pages refer to, and no more.
func TestRequirementsAreCited(t *testing.T) {
	requirements, err := os.ReadFile(filepath.Join(root, requirementsFile))
	if err != nil {
		t.Fatal(err)
	}

	cited := map[string]bool{}
	row := regexp.MustCompile(`\bS[1-5]\.[0-9]+\b`)

	textFiles(t, func(path string, content []byte) {
		if path != requirementsFile {
			for _, r := range row.FindAllString(string(content), -1) {
				cited[r] = true
			}
		}
	})

	for _, match := range regexp.MustCompile(`(?m)^\| (S[1-5]\.[0-9]+) \|`).FindAllSubmatch(requirements, -1) {
		if r := string(match[1]); !cited[r] {
			t.Errorf("%s: nothing cites %s: drop the row", requirementsFile, r)
		}
	}
}

// TestLinksResolve fails for a relative link of a Markdown page whose file does not exist.
func TestLinksResolve(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)

	textFiles(t, func(path string, content []byte) {
		if filepath.Ext(path) != ".md" {
			return
		}

		for _, match := range link.FindAllSubmatch(content, -1) {
			target, _, _ := strings.Cut(string(match[1]), "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}

			if _, err := os.Stat(filepath.Join(root, filepath.Dir(path), target)); err != nil {
				t.Errorf("%s: the link to %s leads nowhere: %v", path, target, err)
			}
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// terraformSession is what ran in one directory. Terraform answers the same to the same commands on the same
// configurations with the same provider, so its answers are kept by content, in the user's cache directory: a
// session runs Terraform only from the first command without an answer on, after all those before it. Answers
// of a test that fails are not kept. The long form does not use them.
type terraformSession struct {
	runner  *terraformRunner
	dir     string
	key     string                     // hash of the tools, and of all commands and configurations so far
	skipped []terraformCommand         // were answered without a run
	given   map[string]terraformAnswer // by key; to keep if the test passes
}

// terraformCommand is a command and the configuration that it ran on.
type terraformCommand struct {
	Arguments []string
	Files     map[string][]byte // by path
}

// terraformAnswer is the result of a command.
type terraformAnswer struct {
	Stdout, Stderr string
	Succeeded      bool
}

func (a terraformAnswer) text() string { return strings.TrimSpace(a.Stdout + a.Stderr) }

func (tf *terraformRunner) newSession(t *testing.T, dir string) *terraformSession {
	t.Helper()
	s := &terraformSession{runner: tf, dir: dir, key: tf.toolsKey, given: map[string]terraformAnswer{}}
	t.Cleanup(func() {
		if !t.Failed() && !t.Skipped() {
			s.keepAnswers(t)
		}
	})

	return s
}

// run returns the answer to a command of Terraform on the configuration that the directory has now.
func (s *terraformSession) run(t *testing.T, args ...string) terraformAnswer {
	t.Helper()
	command := terraformCommand{Arguments: args, Files: s.readConfiguration(t)}
	text, err := json.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}

	s.key = hashOf([]byte(s.key), text)
	if answer, ok := s.findAnswer(t); ok {
		s.skipped = append(s.skipped, command)
		return answer
	}

	for _, skipped := range s.skipped {
		s.execute(t, skipped)
	}

	s.skipped = nil
	s.given[s.key] = s.execute(t, command)

	return s.given[s.key]
}

// readConfiguration returns the files that Terraform reads in the directory.
func (s *terraformSession) readConfiguration(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && entry.Name() == ".terraform" {
			return cmp.Or(err, fs.SkipDir)
		}

		if !strings.HasSuffix(path, ".tf") && !strings.HasSuffix(path, ".tf.json") {
			return nil
		}

		name, err := filepath.Rel(s.dir, path)
		if err != nil {
			return err
		}

		files[name], err = os.ReadFile(path)

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return files
}

func (s *terraformSession) execute(t *testing.T, command terraformCommand) terraformAnswer {
	t.Helper()
	s.runner.startProvider(t)
	for name, body := range command.Files {
		path := filepath.Join(s.dir, name)
		writeFile(t, filepath.Dir(path), filepath.Base(path), body)
	}

	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), s.runner.program, command.Arguments...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, append(os.Environ(), s.runner.env...), &stdout, &stderr
	err := cmd.Run()

	return terraformAnswer{Stdout: stdout.String(), Stderr: stderr.String(), Succeeded: err == nil}
}

// findAnswer returns the answer that was kept under the session's key.
func (s *terraformSession) findAnswer(t *testing.T) (answer terraformAnswer, ok bool) {
	t.Helper()
	if os.Getenv("SLIPWAY_LONG") != "" {
		return answer, false
	}

	text, err := os.ReadFile(filepath.Join(answersDir(t), s.key))
	if err != nil || json.Unmarshal(text, &answer) != nil {
		return terraformAnswer{}, false
	}

	return answer, true
}

// keepAnswers writes the answers that Terraform gave. A file appears when it is complete.
func (s *terraformSession) keepAnswers(t *testing.T) {
	t.Helper()
	for key, answer := range s.given {
		text, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}

		path := writeFile(t, answersDir(t), key+".new", text)
		if err := os.Rename(path, strings.TrimSuffix(path, ".new")); err != nil {
			t.Fatal(err)
		}
	}
}

// answersDir is the directory with one file an answer.
func answersDir(t *testing.T) string {
	t.Helper()
	home, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}

	return filepath.Join(home, "slipway", "test", "terraform")
}

// hashOf returns the hash of texts, which are told apart.
func hashOf(texts ...[]byte) string {
	sum := sha256.New()
	for _, text := range texts {
		one := sha256.Sum256(text)
		_, _ = sum.Write(one[:])
	}

	return hex.EncodeToString(sum.Sum(nil))
}

// TestSession: a session answers what is known without a run, and runs the commands before one that is not.
func TestSession(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("SLIPWAY_LONG", "")
	// The program counts its runs in the directory of the session, as Terraform keeps its state there.
	program := writeFile(t, t.TempDir(), "program", []byte("#!/bin/sh\necho run >> runs\necho \"$1 $(cat main.tf) $(grep -c run runs)\"\n"))
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}

	play := func(name string, steps [][2]string, want []string, wantRuns int) {
		t.Run(name, func(t *testing.T) {
			runner := &terraformRunner{program: program, toolsKey: "tools", started: true}
			dir := t.TempDir()
			s := runner.newSession(t, dir)
			for i, step := range steps {
				writeFile(t, dir, "main.tf", []byte(step[0]))
				if got := s.run(t, step[1]).text(); got != want[i] {
					t.Errorf("step %d: %q, want %q", i, got, want[i])
				}
			}

			runs, err := os.ReadFile(filepath.Join(dir, "runs"))
			if got := bytes.Count(runs, []byte("run")); got != wantRuns {
				t.Errorf("%d runs (%v), want %d", got, err, wantRuns)
			}
		})
	}
	apply := [][2]string{{"a", "apply"}, {"b", "apply"}}
	play("first", apply, []string{"apply a 1", "apply b 2"}, 2)
	play("again", apply, []string{"apply a 1", "apply b 2"}, 0)
	play("one more", append(apply, [2]string{"b", "show"}), []string{"apply a 1", "apply b 2", "show b 3"}, 3)
	play("another configuration", [][2]string{{"c", "apply"}}, []string{"apply c 1"}, 1)
	play("another order", [][2]string{{"b", "apply"}, {"a", "apply"}}, []string{"apply b 1", "apply a 2"}, 2)
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestQuestionIsInterrupted: Ctrl-C ends the wait for an answer.
func TestQuestionIsInterrupted(t *testing.T) {
	in, typing := io.Pipe() // nothing is typed
	defer typing.Close()
	interrupted := make(chan struct{})
	close(interrupted)
	a := &app{Env: Env{Stdin: in, Stderr: newScreen(io.Discard)}, interrupted: interrupted}
	if _, err := a.ask("Go on? "); !errors.Is(err, errInterrupted) {
		t.Errorf("got %v", err)
	}
}

// TestQuestionsReadOneLineEach: an answer that was typed early is kept for its question.
func TestQuestionsReadOneLineEach(t *testing.T) {
	var out bytes.Buffer
	a := &app{Env: Env{Stdin: strings.NewReader("one\n two \nthree"), Stderr: newScreen(&out)}}
	for _, want := range []string{"one", "two", "three"} {
		if got, err := a.ask("? "); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if _, err := a.ask("? "); !errors.Is(err, errNoAnswer) {
		t.Errorf("got %v at the end of the input", err)
	}
}

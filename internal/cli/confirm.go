// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// errNoAnswer means that the input ended before a question was answered.
var errNoAnswer = errors.New("the input ended before the answer")

// errInterrupted means that a question was interrupted, such as with Ctrl-C.
var errInterrupted = errors.New("interrupted")

// errNotConfirmed ends a command that has shown what it would do, and was not told to do it. It is no failure.
var errNotConfirmed = errors.New("nothing was changed: rerun with --yes to confirm")

// isPreview reports whether err is [errNotConfirmed] alone, so that nothing has failed.
func isPreview(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !isPreview(e) })
	}

	if err == errNotConfirmed { //nolint:errorlint // see above
		return true
	}

	inner := errors.Unwrap(err)

	return inner != nil && isPreview(inner)
}

// confirm returns nil if the change is confirmed: by --yes, or by a person who typed yes at the terminal. Without a
// terminal it returns [errNotConfirmed].
func (a *app) confirm(question string) error {
	if a.yes {
		return nil
	}

	if !isTerminal(a.Stdin) {
		return errNotConfirmed
	}

	answer, err := a.ask(question + " Type yes to continue: ")

	switch {
	case err != nil:
		return fmt.Errorf("nothing was changed: %w", err)
	case answer != "yes":
		return errors.New("nothing was changed: the answer was not yes")
	}

	return nil
}

// ask prints a question and returns the line that was typed, without spaces around it. An interrupt ends the
// wait.
func (a *app) ask(question string) (string, error) {
	if a.answers == nil {
		a.answers = bufio.NewReader(a.Stdin)
	}

	fmt.Fprint(a.Stderr, question)
	defer a.endQuestion()

	type line struct {
		text string
		err  error
	}

	typed := make(chan line, 1)

	go func() {
		text, err := a.answers.ReadString('\n')
		typed <- line{text, err}
	}()

	select {
	case l := <-typed:
		text := strings.TrimSpace(l.text)
		if errors.Is(l.err, io.EOF) && text == "" {
			fmt.Fprintln(a.Stderr)
			return "", errNoAnswer
		}

		if l.err != nil && !errors.Is(l.err, io.EOF) {
			return "", fmt.Errorf("read the answer: %w", l.err)
		}

		return text, nil

	case <-a.interrupted:
		fmt.Fprintln(a.Stderr)
		return "", errInterrupted
	}
}

// endQuestion lets the live area be drawn again.
func (a *app) endQuestion() {
	if s, ok := a.Stderr.(*screen); ok {
		s.endQuestion()
	}
}

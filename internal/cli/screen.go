// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// screen is where messages are written: a terminal, or any other stream. On a terminal it can show a
// live area below the last message: lines that are replaced while work continues. A message, an error or
// a question is written above the live area. Several goroutines may use a screen.
type screen struct {
	out io.Writer
	// size returns the columns and rows of the terminal; zeros if unknown.
	size func() (columns, rows int)

	mu       sync.Mutex
	live     []string // the lines of the live area; empty: none
	drawn    []int    // the widths of the lines that the terminal shows, in characters
	openLine bool     // the last message has no newline: a question waits for its answer
}

func newScreen(out io.Writer) *screen {
	return &screen{out: out, size: func() (int, int) {
		f, ok := out.(*os.File)
		if !ok {
			return 0, 0
		}

		columns, rows, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0, 0
		}

		return columns, rows
	}}
}

// Write writes a message above the live area. It implements [io.Writer].
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}

	if len(s.live) == 0 && len(s.drawn) == 0 {
		s.openLine = p[len(p)-1] != '\n'
		return s.out.Write(p)
	}

	var frame bytes.Buffer
	s.erase(&frame)
	frame.Write(p)
	s.openLine = p[len(p)-1] != '\n'
	s.draw(&frame)
	if _, err := s.out.Write(frame.Bytes()); err != nil {
		return 0, err
	}

	return len(p), nil
}

// setLive replaces the live area; no lines remove it. While a question waits for its answer, nothing
// is drawn.
func (s *screen) setLive(lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = make([]string, len(lines))
	for i, line := range lines { // a line feed of others would push the area out of its place
		s.live[i] = strings.ReplaceAll(plainerror.Printable(line), "\n", " ")
	}

	if s.openLine {
		return
	}

	var frame bytes.Buffer
	s.erase(&frame)
	s.draw(&frame)
	_, _ = s.out.Write(frame.Bytes()) // progress is not worth an error
}

// endQuestion reports that the answer to a question was typed: the cursor is at the start of a line.
func (s *screen) endQuestion() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openLine = false
}

// erase removes the drawn lines and leaves the cursor where the first of them began. A terminal that has
// become narrower shows a line in several rows.
func (s *screen) erase(frame *bytes.Buffer) {
	if len(s.drawn) == 0 {
		return
	}

	columns, _ := s.size()
	rows := 0
	for _, width := range s.drawn {
		rows++
		if columns > 0 && width > columns {
			rows += (width - 1) / columns
		}
	}

	s.drawn = nil
	fmt.Fprintf(frame, "\r\x1b[%dA\x1b[J", rows)
}

// draw writes the live area, with no line wider than the terminal and not more lines than it has.
func (s *screen) draw(frame *bytes.Buffer) {
	if s.openLine {
		return
	}

	columns, rows := s.size()
	lines := s.live
	if rows > 1 && len(lines) > rows-1 {
		lines = lines[:rows-1]
	}

	for _, line := range lines {
		line = cutLine(strings.ReplaceAll(line, "\n", " "), columns)
		s.drawn = append(s.drawn, utf8.RuneCountInString(line))
		frame.WriteString(line + "\n")
	}
}

// cutLine shortens a line to less than columns characters, so that no terminal wraps it.
func cutLine(line string, columns int) string {
	runes := []rune(line)
	if columns <= 0 || len(runes) < columns {
		return line
	}

	const ellipsis = "…"
	if columns == 1 {
		return ""
	}

	return string(runes[:max(columns-2, 0)]) + ellipsis
}

// baseStream returns the stream below a screen, for programs that slipway starts.
func baseStream(w io.Writer) io.Writer {
	if s, ok := w.(*screen); ok {
		return s.out
	}

	return w
}

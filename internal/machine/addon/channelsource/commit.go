// SPDX-License-Identifier: Apache-2.0

package channelsource

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/signing"
)

// commit is what is read of a commit.
type commit struct {
	tree      string
	committed time.Time
	signature string // armored; empty: none
	signed    []byte // what was signed: the commit without its signature
}

// commitKeys returns the keys of a source.
func commitKeys(texts []string) ([]signing.CommitKey, error) {
	var out []signing.CommitKey
	for n, text := range texts {
		key, err := signing.ParseCommitKey(text)
		if err != nil {
			return nil, fmt.Errorf("public key %d %w", n+1, err)
		}

		out = append(out, key)
	}

	return out, nil
}

// parseCommit parses a commit: https://git-scm.com/docs/gitformat-signature. A header continues in
// lines that begin with a space.
func parseCommit(text []byte) (*commit, error) {
	header, message, found := bytes.Cut(text, []byte("\n\n"))
	if !found {
		return nil, errors.New("the commit is not valid")
	}

	out := &commit{}
	var signed bytes.Buffer
	inSignature := false

	for line := range strings.SplitSeq(string(header), "\n") {
		field, value, _ := strings.Cut(line, " ")
		if field == "" && inSignature {
			out.signature += value + "\n"
			continue
		}

		inSignature = field == "gpgsig"
		if inSignature {
			if out.signature != "" {
				return nil, errors.New("the commit has several signatures")
			}

			out.signature = value + "\n"
			continue
		}

		signed.WriteString(line + "\n")
		if err := out.set(field, value); err != nil {
			return nil, err
		}
	}

	if out.tree == "" || out.committed.IsZero() {
		return nil, errors.New("the commit has no tree or no time")
	}

	signed.WriteString("\n")
	signed.Write(message)
	out.signed = signed.Bytes()

	return out, nil
}

// set sets what a header says. The first of several counts, as for git.
func (c *commit) set(field, value string) error {
	switch {
	case field == "tree" && c.tree == "":
		c.tree = value
	case field == "committer" && c.committed.IsZero():
		seconds, err := parseUnix(value)
		if err != nil {
			return err
		}

		c.committed = time.Unix(seconds, 0).UTC()
	}

	return nil
}

// verify checks that one of the keys has signed the commit.
func (c *commit) verify(keys []signing.CommitKey) error {
	if c.signature == "" {
		return errors.New("the commit is not signed")
	}

	if err := signing.VerifyCommit(keys, c.signed, c.signature); err != nil {
		return fmt.Errorf("the signature of the commit is refused: %w", err)
	}

	return nil
}

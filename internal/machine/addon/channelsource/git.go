// SPDX-License-Identifier: Apache-2.0

package channelsource

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/guardedhttp"
	"github.com/slipway-k8s/slipway/internal/lib/signing"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

// gitClient speaks version 2 of git's protocol with one repository:
// https://git-scm.com/docs/protocol-v2.
type gitClient struct {
	http        *http.Client
	address     string // of the repository; after the first answer, where redirects have led to
	host        string // of the address that was given
	credentials published.Credentials
}

// fetchCommit returns the newest revision of a branch or tag. After an error it may have its id.
func (f Fetcher) fetchCommit(ctx context.Context, s published.Source, known string) (Revision, error) {
	keys, err := commitKeys(s.PublicKeys)
	if err != nil {
		return Revision{}, err
	}

	address, err := url.Parse(s.Git)
	if err != nil {
		return Revision{}, errors.New("the address is not valid")
	}

	client := &gitClient{
		http:        guardedhttp.NewClient(f.options(address.Host, false)),
		address:     strings.TrimSuffix(s.Git, "/"),
		host:        address.Host,
		credentials: s.Credentials,
	}
	if err := client.connect(ctx); err != nil {
		return Revision{}, err
	}

	id, err := client.resolve(ctx, s.Ref)
	if err != nil || id == known {
		return Revision{ID: id}, err
	}

	objects, err := client.download(ctx, id)
	if err != nil {
		return Revision{ID: id}, err
	}

	return objects.revision(id, keys, s.Path)
}

// revision returns a commit with its files, once its signature is verified.
func (o gitObjects) revision(id string, keys []signing.CommitKey, below string) (Revision, error) {
	out := Revision{ID: id}
	found, has := o[id]
	if !has || found.kind != typeCommit {
		return out, errors.New("the server does not send the commit")
	}

	parsed, err := parseCommit(found.text)
	if err != nil {
		return out, err
	}

	out.Created = parsed.committed
	if len(keys) > 0 {
		if err := parsed.verify(keys); err != nil {
			return out, err
		}
	}

	builder := &treeBuilder{}
	root := treeEntry{mode: modeDirectory, id: parsed.tree}
	if err := o.checkOut(builder, root, below, 0); err != nil {
		return out, err
	}

	out.Files = builder.files

	return out, nil
}

// do makes a request to the repository.
func (c *gitClient) do(ctx context.Context, method, suffix string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.address+suffix, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the address is not valid")
	}

	request.Header.Set("Git-Protocol", "version=2")
	request.Header.Set("User-Agent", "git/slipway") // some servers answer programs of this name only
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-git-upload-pack-request")
		request.Header.Set("Accept", "application/x-git-upload-pack-result")
	}

	if c.credentials != (published.Credentials{}) && request.URL.Host == c.host {
		request.SetBasicAuth(c.credentials.User, c.credentials.Password)
	}

	response, err := c.http.Do(request)
	if err != nil {
		return nil, guardedhttp.Cause(err)
	}

	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()

		return nil, diag.WithHint(
			fmt.Errorf("%s answers %s", request.URL.Host, response.Status),
			"check the address of the repository and the credentials",
		)
	}

	return response, nil
}

// connect checks that the server speaks version 2, and follows its redirects.
func (c *gitClient) connect(ctx context.Context) error {
	const suffix = "/info/refs"

	response, err := c.do(ctx, http.MethodGet, suffix+"?service=git-upload-pack", nil)
	if err != nil {
		return err
	}

	defer func() { _ = response.Body.Close() }()
	lines := &packetReader{from: response.Body}
	hasVersion := false
	hashes := "sha1"
	for range maxPackets {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return err
		}

		text := strings.TrimSuffix(string(line.text), "\n")
		hasVersion = hasVersion || text == "version 2"
		if format, found := strings.CutPrefix(text, "object-format="); found {
			hashes = format
		}
	}

	if !hasVersion || hashes != "sha1" {
		return fmt.Errorf("the server does not speak version 2 of git's protocol with hashes of SHA-1 (it has %s)", hashes)
	}

	final := *response.Request.URL
	final.RawQuery = ""
	if base, found := strings.CutSuffix(final.String(), suffix); found {
		c.address = base
	}

	return nil
}

// resolve returns the id of the commit that a branch or a tag names.
func (c *gitClient) resolve(ctx context.Context, ref string) (string, error) {
	names := []string{"refs/heads/" + ref, "refs/tags/" + ref}
	if strings.HasPrefix(ref, "refs/") {
		names = []string{ref}
	}

	arguments := []string{"peel"}
	for _, name := range names {
		arguments = append(arguments, "ref-prefix "+name)
	}

	response, err := c.command(ctx, "ls-refs", arguments)
	if err != nil {
		return "", err
	}

	defer func() { _ = response.Body.Close() }()
	found, err := readRefs(response.Body)
	if err != nil {
		return "", err
	}

	for _, name := range names {
		if id := found[name]; regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(id) {
			return id, nil
		}
	}

	return "", fmt.Errorf("the repository has no branch and no tag %s", ref)
}

// readRefs returns the ids of the commits that names of a repository stand for. A tag can be an
// object of its own.
func readRefs(from io.Reader) (map[string]string, error) {
	found := map[string]string{}
	lines := &packetReader{from: from}

	for range maxPackets {
		line, err := lines.next()
		if errors.Is(err, io.EOF) || line.kind == packetFlush {
			break
		}

		if err != nil {
			return nil, err
		}

		parts := strings.Fields(string(line.text))
		if len(parts) < 2 {
			continue
		}

		id := parts[0]
		for _, attribute := range parts[2:] {
			if peeled, isTag := strings.CutPrefix(attribute, "peeled:"); isTag {
				id = peeled
			}
		}

		found[parts[1]] = id
	}

	return found, nil
}

// command sends a command of the protocol.
func (c *gitClient) command(ctx context.Context, name string, arguments []string) (*http.Response, error) {
	body := appendPacket(nil, "command="+name+"\n")
	body = appendPacket(body, "object-format=sha1\n")
	body = append(body, "0001"...)
	for _, argument := range arguments {
		body = appendPacket(body, argument+"\n")
	}

	body = append(body, "0000"...)

	return c.do(ctx, http.MethodPost, "/git-upload-pack", body)
}

// download returns a commit with its trees and files, without its history.
func (c *gitClient) download(ctx context.Context, id string) (gitObjects, error) {
	response, err := c.command(ctx, "fetch", []string{"no-progress", "deepen 1", "want " + id, "done"})
	if err != nil {
		return nil, err
	}

	defer func() { _ = response.Body.Close() }()
	lines := &packetReader{from: response.Body}

	for range maxPackets {
		line, err := lines.next()
		if err != nil {
			return nil, fmt.Errorf("the server sends no pack: %w", err)
		}

		if string(line.text) == "packfile\n" {
			return readPack(ctx, &sideband{lines: lines})
		}
	}

	return nil, errors.New("the server sends no pack")
}

// checkOut adds an entry of a tree to a builder, with what is in it. Of a directory above the path
// of the source only what is below the path is added. Links and submodules are left out: nothing
// follows them.
func (o gitObjects) checkOut(b *treeBuilder, e treeEntry, below string, depth int) error {
	isInside := below == "" || e.name == below || strings.HasPrefix(e.name, below+"/")

	switch {
	case e.mode == modeDirectory && (isInside || e.name == "" || strings.HasPrefix(below, e.name+"/")):
		return o.checkOutDirectory(b, e, below, depth)
	case (e.mode == modeFile || e.mode == modeProgram) && isInside:
		return o.checkOutFile(b, e)
	}

	return nil
}

func (o gitObjects) checkOutDirectory(b *treeBuilder, e treeEntry, below string, depth int) error {
	if depth > maxTreeDepth {
		return fmt.Errorf("its directories are nested more than %d deep", maxTreeDepth)
	}

	entries, err := o.readTree(e.id)
	if err != nil {
		return err
	}

	for _, child := range entries {
		b.entries++
		if b.entries > maxTreeEntries {
			return fmt.Errorf("its directories have more than %d entries", maxTreeEntries)
		}

		child.name = path.Join(e.name, child.name)
		if err := o.checkOut(b, child, below, depth+1); err != nil {
			return err
		}
	}

	return nil
}

func (o gitObjects) checkOutFile(b *treeBuilder, e treeEntry) error {
	blob, has := o[e.id]
	if !has || blob.kind != typeBlob {
		return fmt.Errorf("the server does not send file %s", e.name)
	}

	return b.add(e.name, bytes.NewReader(blob.text))
}

// The modes of entries of trees, in octal.
const (
	modeDirectory = "40000"
	modeFile      = "100644"
	modeProgram   = "100755"

	maxTreeDepth   = 32
	maxTreeEntries = 100_000 // a directory can be in a tree many times
)

// treeEntry is an entry of a tree.
type treeEntry struct{ mode, name, id string }

// readTree returns the entries of a tree.
func (o gitObjects) readTree(id string) ([]treeEntry, error) {
	tree, has := o[id]
	if !has || tree.kind != typeTree {
		return nil, fmt.Errorf("the server does not send tree %s", id)
	}

	var out []treeEntry
	for rest := tree.text; len(rest) > 0; {
		header, after, found := bytes.Cut(rest, []byte{0})
		mode, name, hasName := strings.Cut(string(header), " ")
		if !found || !hasName || len(after) < gitHashBytes || name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
			return nil, fmt.Errorf("tree %s is not valid", id)
		}

		out = append(out, treeEntry{mode: mode, name: name, id: hex.EncodeToString(after[:gitHashBytes])})
		rest = after[gitHashBytes:]
	}

	return out, nil
}

// parseUnix returns the seconds of a line such as "committer A <a@example.com> 1700000000 +0100".
func parseUnix(line string) (int64, error) {
	parts := strings.Fields(line)
	if len(parts) < 3 {
		return 0, errors.New("the commit has no time")
	}

	seconds, err := strconv.ParseInt(parts[len(parts)-2], 10, 64)
	if err != nil {
		return 0, errors.New("the commit has a time that is not valid")
	}

	return seconds, nil
}

// SPDX-License-Identifier: Apache-2.0

// Package supportbundle collects what somebody needs to find the cause of a problem in a cluster, in one archive without
// secrets: manifests, machines' consoles and journals, agents' reports, the state of etcd and of Kubernetes, facts from
// AWS, and the history of operations.
//
// A [Source] reads one file of the archive. [Collect] reads all of them, redacts what they return, and continues if one
// fails: the index lists it with its error. Every byte of the archive, errors included, passes the [Redactor]. Nothing
// is changed, and no machine is logged in to.
package supportbundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	// sourceTimeout limits one source: a part of the cluster that does not answer must not stop the rest.
	sourceTimeout = 30 * time.Second
	// maxConcurrentSources limits the sources that are read at a time.
	maxConcurrentSources = 6
	// maxFileSize limits one file. Of a longer one, the end is kept.
	maxFileSize = 4 << 20
)

// Source is one file of a bundle.
type Source struct {
	// Path in the archive, such as machines/i-1/console.txt. Its suffix is the format: .txt, .json or .yaml.
	Path string
	// Title says what it is.
	Title string
	// Read returns its content: a []byte or string for .txt, else any value that can be encoded as JSON.
	Read func(ctx context.Context) (any, error)
}

// File is one file of a bundle after it was read.
type File struct {
	// Path in the archive.
	Path string
	// Title says what it is.
	Title string
	// Body is its content without secrets; empty if it could not be read.
	Body []byte
	// Error why it could not be read, without secrets; empty if it could.
	Error string
	// Redactions is the number of secrets that were replaced.
	Redactions int
	// Truncated is set if only the end of it was kept.
	Truncated bool
}

// Header describes a bundle in its index.
type Header struct {
	// Cluster is the name of the cluster.
	Cluster string
	// CreatedAt is when it was collected.
	CreatedAt time.Time
	// Tool is the version of slipway.
	Tool string
	// Notes are for the reader, such as which machines were left out.
	Notes []string
}

// Collect reads all sources. The result is in the order of the paths. progress is called after each source, by one
// goroutine at a time; it may be nil.
func Collect(ctx context.Context, sources []Source, progress func(File)) []File {
	redactor := NewRedactor()
	out := make([]File, len(sources))
	slots := make(chan struct{}, maxConcurrentSources)
	var wg sync.WaitGroup
	var lock sync.Mutex

	for i, s := range sources {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()

			out[i] = s.readFile(ctx, redactor)
			if progress != nil {
				lock.Lock()
				defer lock.Unlock()
				progress(out[i])
			}
		})
	}

	wg.Wait()
	slices.SortFunc(out, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })

	return out
}

// readFile reads and redacts one source.
func (s Source) readFile(ctx context.Context, redactor *Redactor) File {
	out := File{Path: s.Path, Title: s.Title}
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()

	content, err := s.Read(ctx)
	if err != nil {
		out.Error, out.Redactions = redactor.Text(err.Error())
		return out
	}

	body, n, err := encode(s.Path, content, redactor)
	if err != nil {
		out.Error, _ = redactor.Text(err.Error())
		return out
	}

	out.Redactions = n
	out.Truncated = len(body) > maxFileSize
	if out.Truncated {
		body = body[len(body)-maxFileSize:]
		body = body[bytes.IndexByte(body, '\n')+1:]
	}

	out.Body = body

	return out
}

// encode renders and redacts content: first as a tree, where names are known, then as text, since a secret may be spread
// over several values of a rendered document.
func encode(path string, content any, redactor *Redactor) ([]byte, int, error) {
	var text string
	total := 0

	switch c := content.(type) {
	case []byte:
		text = string(c)
	case string:
		text = c
	default:
		tree, err := toTree(content)
		if err != nil {
			return nil, 0, fmt.Errorf("encode %s: %w", path, err)
		}

		clean, n := redactor.Value(tree)
		total = n
		body, err := render(path, clean)
		if err != nil {
			return nil, 0, fmt.Errorf("encode %s: %w", path, err)
		}

		text = string(body)
	}

	text = strings.ToValidUTF8(text, "\uFFFD")
	text, n := redactor.Text(text)

	return []byte(text), total + n, nil
}

func render(path string, tree any) ([]byte, error) {
	if strings.HasSuffix(path, ".yaml") {
		return yaml.Marshal(tree)
	}

	body, err := json.MarshalIndent(tree, "", "  ")

	return append(body, '\n'), err
}

// toTree converts a value to maps, lists and strings.
func toTree(v any) (any, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}

	var tree any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()

	err = decoder.Decode(&tree)

	return tree, err
}

// Archive returns the bundle as a compressed tar archive. The same header and files give the same bytes.
func Archive(h Header, files []File) ([]byte, error) {
	index, err := renderIndex(h, files)
	if err != nil {
		return nil, err
	}

	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	dir := "slipway-support-" + h.Cluster + "/"

	all := []File{{Path: "index.html", Body: index}}
	for _, f := range files {
		if f.Error == "" {
			all = append(all, f)
		}
	}

	for _, f := range all {
		header := &tar.Header{
			Name:    dir + f.Path,
			Mode:    0o644,
			Size:    int64(len(f.Body)),
			ModTime: h.CreatedAt.UTC().Truncate(time.Second),
			Format:  tar.FormatPAX,
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("write %s: %w", header.Name, err)
		}

		if _, err := archive.Write(f.Body); err != nil {
			return nil, fmt.Errorf("write %s: %w", header.Name, err)
		}
	}

	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("write the archive: %w", err)
	}

	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("write the archive: %w", err)
	}

	return out.Bytes(), nil
}

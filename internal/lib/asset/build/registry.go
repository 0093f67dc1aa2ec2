// SPDX-License-Identifier: Apache-2.0

package build

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// RegistryHandler returns a handler that serves the output folder dir of Run, read-only. It serves
// the images at /v2/ by the OCI distribution specification, in repositories <upstream host>/<path>,
// and the files at /files/<upstream host>/<path>. It reads dir on every request, so that it serves
// the results of a later Run without a restart.
func RegistryHandler(dir string) http.Handler {
	r := registry{images: filepath.Join(dir, "images")}
	mux := http.NewServeMux()
	mux.Handle(
		"GET /files/",
		http.StripPrefix("/files/", http.FileServerFS(os.DirFS(filepath.Join(dir, "files")))),
	)

	mux.HandleFunc("GET /v2/", r.serveRequest)

	return mux
}

type registry struct{ images string }

func (r registry) serveRequest(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	rest := strings.TrimPrefix(req.URL.Path, "/v2/")
	if rest == "" {
		w.WriteHeader(http.StatusOK)
		return
	}

	pattern := regexp.MustCompile(`^(.+)/(manifests|blobs|tags)/([A-Za-z0-9_][A-Za-z0-9._:-]*)$`)
	parts := pattern.FindStringSubmatch(rest)
	if parts == nil {
		writeError(w, http.StatusNotFound, "NAME_UNKNOWN", "unknown path "+req.URL.Path)
		return
	}

	index, err := r.readIndex()
	if err != nil {
		writeError(
			w,
			http.StatusServiceUnavailable,
			"UNAVAILABLE",
			"the images have not been built: run slipway assets build",
		)

		return
	}

	repository := parts[1]
	name := parts[3]

	switch parts[2] {
	case "tags":
		r.serveTags(w, index, repository)
	case "blobs":
		r.serveBlob(w, req, name, "application/octet-stream")
	default:
		manifest := findManifest(index, repository, name)
		if manifest == nil {
			writeError(w, http.StatusNotFound, "MANIFEST_UNKNOWN", repository+" has no manifest "+name)
			return
		}

		r.serveBlob(w, req, manifest.Digest.String(), string(manifest.MediaType))
	}
}

func (r registry) readIndex() (v1.IndexManifest, error) {
	var index v1.IndexManifest
	raw, err := os.ReadFile(filepath.Join(r.images, "index.json"))
	if err != nil {
		return index, fmt.Errorf("read the image layout: %w", err)
	}

	if err := json.Unmarshal(raw, &index); err != nil {
		return index, fmt.Errorf("read the image layout: %w", err)
	}

	return index, nil
}

// findManifest returns the manifest with a tag or digest, or nil.
func findManifest(index v1.IndexManifest, repository, name string) *v1.Descriptor {
	for _, d := range index.Manifests {
		repo, tag := splitRef(d.Annotations[RefAnnotation])
		if repo == repository && (tag == name || d.Digest.String() == name) {
			return &d
		}
	}

	return nil
}

func splitRef(ref string) (repository, tag string) {
	colon := strings.LastIndex(ref, ":")
	if colon < 0 {
		return ref, ""
	}

	return ref[:colon], ref[colon+1:]
}

func (r registry) serveTags(w http.ResponseWriter, index v1.IndexManifest, repository string) {
	list := struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}{Name: repository}

	for _, d := range index.Manifests {
		if repo, tag := splitRef(d.Annotations[RefAnnotation]); repo == repository {
			list.Tags = append(list.Tags, tag)
		}
	}

	if list.Tags == nil {
		writeError(w, http.StatusNotFound, "NAME_UNKNOWN", "unknown repository "+repository)
		return
	}

	slices.Sort(list.Tags)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // fails only if the client has disconnected
}

func (r registry) serveBlob(w http.ResponseWriter, req *http.Request, digest, mediaType string) {
	hash, err := v1.NewHash(digest)
	if err != nil || hash.Algorithm != "sha256" {
		writeError(w, http.StatusBadRequest, "DIGEST_INVALID", digest+" is not a sha256 digest")
		return
	}

	f, err := os.Open(filepath.Join(r.images, "blobs", "sha256", hash.Hex))
	if err != nil {
		writeError(w, http.StatusNotFound, "BLOB_UNKNOWN", "unknown blob "+digest)
		return
	}

	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		writeError(w, http.StatusNotFound, "BLOB_UNKNOWN", "unknown blob "+digest)
		return
	}

	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Etag", `"`+digest+`"`)
	http.ServeContent(w, req, "", info.ModTime(), f)
}

// writeError writes an error response of the OCI distribution specification.
func writeError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	body := map[string]any{"errors": []map[string]string{{"code": code, "message": message}}}
	_ = json.NewEncoder(w).Encode(body) // fails only if the client has disconnected
}

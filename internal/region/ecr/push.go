// SPDX-License-Identifier: Apache-2.0

package ecr

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// maxManifestBytes limits a manifest, as the OCI distribution specification advises.
const maxManifestBytes = 4 << 20

// startUpload starts the upload of a layer. A layer of another repository is not mounted: the
// client uploads it, as for a registry in AWS that does not allow it.
func (c registryCall) startUpload() {
	c.acceptPart(rand.Text())
}

// acceptPart tells the client where the next part of an upload belongs.
func (c registryCall) acceptPart(id string) {
	c.w.Header().Set("Location", "/v2/"+c.repository+"/blobs/uploads/"+id)
	c.w.Header().Set("Docker-Upload-Uuid", id)
	c.w.WriteHeader(http.StatusAccepted)
}

// uploadPath returns the file of an upload, and whether its id is one of startUpload.
func (c registryCall) uploadPath() (string, bool) {
	ok := regexp.MustCompile(`^[A-Z0-9]{26}$`).MatchString(c.reference)

	return filepath.Join(c.cfg.Dir, "uploads", strings.ReplaceAll(c.repository, "/", "_")+"."+c.reference), ok
}

// appendBody appends the body of a request to the file of an upload, and returns its path.
func (c registryCall) appendBody() (string, error) {
	path, ok := c.uploadPath()
	if !ok {
		return "", fmt.Errorf("there is no upload %s", c.reference)
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("store an upload: %w", err)
	}

	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("store an upload: %w", err)
	}

	_, err = io.Copy(f, c.r.Body)

	return path, errors.Join(err, f.Close())
}

func (c registryCall) appendUpload() {
	if _, err := c.appendBody(); err != nil {
		refuse(c.w, http.StatusBadRequest, "BLOB_UPLOAD_INVALID", err.Error())
		return
	}

	c.acceptPart(c.reference)
}

// finishUpload compares an upload with its digest and adds it to the repository.
func (c registryCall) finishUpload() {
	path, err := c.appendBody()
	if err != nil {
		refuse(c.w, http.StatusBadRequest, "BLOB_UPLOAD_INVALID", err.Error())
		return
	}

	digest := c.r.URL.Query().Get("digest")
	if err := c.keepFile(path, digest); err != nil {
		refuse(c.w, http.StatusBadRequest, "DIGEST_INVALID", err.Error())
		return
	}

	err = c.store.Update(func() error {
		c.st.Repositories[c.repository].Layers[digest] = true
		return nil
	})
	c.created("blobs/"+digest, digest, err)
}

// keepFile moves a file to its place among the contents, if it has the digest.
func (c registryCall) keepFile(path, digest string) error {
	have, err := hashFile(path)
	if err != nil {
		return err
	}

	target, ok := c.blobPath(digest)
	if !ok || have != digest {
		return errors.Join(fmt.Errorf("the content has the digest %s, not %s", have, digest), os.Remove(path))
	}

	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return fmt.Errorf("store %s: %w", digest, err)
	}

	return os.Rename(path, target)
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("compute a digest: %w", err)
	}

	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("compute a digest: %w", err)
	}

	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// created answers that a content has been stored.
func (c registryCall) created(path, digest string, err error) {
	if err != nil {
		refuse(c.w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	}

	c.w.Header().Set("Location", "/v2/"+c.repository+"/"+path)
	c.w.Header().Set("Docker-Content-Digest", digest)
	c.w.WriteHeader(http.StatusCreated)
}

// putManifest stores a manifest whose layers the repository has, and sets its tag.
func (c registryCall) putManifest() {
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxManifestBytes))
	if err != nil {
		refuse(c.w, http.StatusRequestEntityTooLarge, "MANIFEST_INVALID", err.Error())
		return
	}

	sum := sha256.Sum256(body)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	if strings.HasPrefix(c.reference, "sha256:") && c.reference != digest {
		refuse(c.w, http.StatusBadRequest, "DIGEST_INVALID", "the manifest has the digest "+digest)
		return
	}

	missing := ""
	c.store.View(func() { missing, err = c.missingPart(body) })

	switch {
	case err != nil:
		refuse(c.w, http.StatusBadRequest, "MANIFEST_INVALID", err.Error())
	case missing != "":
		refuse(c.w, http.StatusBadRequest, "MANIFEST_BLOB_UNKNOWN", "the repository has no "+missing)
	default:
		c.created("manifests/"+digest, digest, c.addManifest(body, digest))
	}
}

// missingPart returns the first part of a manifest that the repository does not have; empty if it
// has all. The caller holds the store's lock.
func (c registryCall) missingPart(body []byte) (string, error) {
	type part struct {
		Digest string `json:"digest"`
	}

	var m struct {
		Config    part   `json:"config"`
		Layers    []part `json:"layers"`
		Manifests []part `json:"manifests"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return "", fmt.Errorf("read the manifest: %w", err)
	}

	has := c.st.Repositories[c.repository]
	for _, p := range m.Manifests {
		if _, ok := has.Manifests[p.Digest]; !ok {
			return "manifest " + p.Digest, nil
		}
	}

	layers := m.Layers
	if len(m.Manifests) == 0 {
		layers = append(layers, m.Config)
	}

	for _, p := range layers {
		if !has.Layers[p.Digest] {
			return "layer " + p.Digest, nil
		}
	}

	return "", nil
}

// addManifest stores a manifest and sets the tag that the request names.
func (c registryCall) addManifest(body []byte, digest string) error {
	path, _ := c.blobPath(digest)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("store %s: %w", digest, err)
	}

	if err := os.WriteFile(path, body, 0o600); err != nil {
		return fmt.Errorf("store %s: %w", digest, err)
	}

	return c.store.Update(func() error {
		to := c.st.Repositories[c.repository]
		to.Manifests[digest] = manifest{MediaType: c.r.Header.Get("Content-Type")}
		if c.reference != digest {
			to.Tags[c.reference] = digest
		}

		return nil
	})
}

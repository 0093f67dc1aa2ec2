// SPDX-License-Identifier: Apache-2.0

package ecr

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// RegistryHost returns the host name of the private registry of an account in a region.
func RegistryHost(account, region string) string {
	return account + ".dkr.ecr." + region + ".amazonaws.com"
}

// layerHost returns the host name of the bucket in S3 that has the layers of all registries of a
// region: https://docs.aws.amazon.com/AmazonECR/latest/userguide/vpc-endpoints.html, minimum Amazon
// S3 bucket permissions.
func layerHost(region string) string {
	return "prod-" + region + "-starport-layer-bucket.s3." + region + ".amazonaws.com"
}

// Hosts returns the host names that the registry and its layers have inside VPCs.
func Hosts(account, region string) []string {
	return []string{RegistryHost(account, region), layerHost(region)}
}

// ClientFiles returns the files below /etc with which containerd reaches the registry, by path: the
// region has no TLS.
func ClientFiles(account, region string) map[string]string {
	host := RegistryHost(account, region)

	return map[string]string{"containerd/certs.d/" + host + "/hosts.toml": "server = \"http://" + host + "\"\n"}
}

func (s *Service) registryHost() string { return RegistryHost(s.cfg.Account, s.cfg.Region) }
func (s *Service) layerHost() string    { return layerHost(s.cfg.Region) }

// EndpointOf returns the service that a request needs a VPC endpoint of: ecr.dkr for the registry,
// s3 for a layer, and nothing for others.
func (s *Service) EndpointOf(r *http.Request) string {
	switch hostOf(r) {
	case s.registryHost():
		return "ecr.dkr"
	case s.layerHost():
		return "s3"
	default:
		return ""
	}
}

// Handler returns the handler of a request to the registry or for a layer, which is recognized by
// its host.
func (s *Service) Handler(r *http.Request) (http.Handler, bool) {
	switch hostOf(r) {
	case s.registryHost():
		return http.HandlerFunc(s.serveRegistry), true
	case s.layerHost():
		return http.HandlerFunc(s.serveLayer), true
	default:
		return nil, false
	}
}

// hostOf returns the host name of a request without the port.
func hostOf(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		return host
	}

	return r.Host
}

// registryCall is a request to the registry by a client with a valid token.
type registryCall struct {
	*Service
	w          http.ResponseWriter
	r          *http.Request
	ctx        context.Context //nolint:containedctx // of the request, with its caller
	repository string
	reference  string // tag, digest or id of an upload
}

// serveRegistry serves the paths of the OCI distribution specification.
func (s *Service) serveRegistry(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	caller, err := s.authenticate(r)

	switch {
	case errors.Is(err, errTokenExpired):
		refuse(w, http.StatusForbidden, "DENIED", "Your authorization token has expired. Reauthenticate and try again.")
		return
	case err != nil:
		w.Header().Set("Www-Authenticate", `Basic realm="https://`+s.registryHost()+`/",service="ecr.amazonaws.com"`)
		http.Error(w, "Not Authorized", http.StatusUnauthorized)

		return
	case r.URL.Path == "/v2/":
		w.WriteHeader(http.StatusOK)
		return
	}

	ctx := wire.WithAuthorizer(wire.WithCaller(r.Context(), caller), s.cfg.Authorizer)
	c := registryCall{Service: s, w: w, r: r, ctx: ctx}
	c.serve()
}

// authenticate returns the identity of a client by its token.
func (s *Service) authenticate(r *http.Request) (wire.Caller, error) {
	user, password, ok := r.BasicAuth()
	if !ok || user != tokenUser {
		return wire.Caller{}, errNoToken
	}

	var t token
	var err error
	s.store.View(func() { t, err = openToken(s.st.Key, password, s.cfg.Now()) })

	return t.Caller, err
}

// operation is one operation of the registry with the action of IAM that it needs.
type operation struct {
	action string
	do     func(registryCall)
}

// serve finds the operation of a request, and runs it if the caller may do it.
func (c registryCall) serve() {
	pattern := regexp.MustCompile(
		`^/v2/(` + namePattern + `)/(manifests|blobs|blobs/uploads|tags)/([A-Za-z0-9_][A-Za-z0-9._:-]*)?$`,
	)
	parts := pattern.FindStringSubmatch(c.r.URL.Path)
	if parts == nil {
		refuse(c.w, http.StatusNotFound, "NAME_UNKNOWN", "unknown path "+c.r.URL.Path)
		return
	}

	c.repository = parts[1]
	c.reference = parts[3]

	op, ok := operations()[c.r.Method+" "+parts[2]]
	if !ok {
		refuse(c.w, http.StatusMethodNotAllowed, "UNSUPPORTED", "the region does not implement "+c.r.Method+" "+parts[2])
		return
	}

	err := wire.Authorize(c.ctx, wire.AccessCheck{Action: op.action, Resource: c.repositoryARN(c.repository)})
	if denied, isDenied := errors.AsType[*wire.Error](err); isDenied {
		refuse(c.w, http.StatusForbidden, "DENIED", denied.Message)
		return
	}

	if err != nil {
		refuse(c.w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	}

	exists := false
	c.store.View(func() { exists = c.st.Repositories[c.repository] != nil })
	if !exists || c.unseen.Hides(c.repository) {
		refuse(c.w, http.StatusNotFound, "NAME_UNKNOWN", c.missingText(c.repository))
		return
	}

	op.do(c)
}

// operations returns the operations by method and kind of path. The actions are those of the
// Service Authorization Reference; Amazon ECR documents which a pull and a push need.
func operations() map[string]operation {
	return map[string]operation{
		"GET manifests":       {"ecr:BatchGetImage", registryCall.getManifest},
		"HEAD manifests":      {"ecr:BatchGetImage", registryCall.getManifest},
		"HEAD blobs":          {"ecr:BatchCheckLayerAvailability", registryCall.headLayer},
		"GET blobs":           {"ecr:GetDownloadUrlForLayer", registryCall.redirectToLayer},
		"GET tags":            {"ecr:ListImages", registryCall.listTags},
		"POST blobs/uploads":  {"ecr:InitiateLayerUpload", registryCall.startUpload},
		"PATCH blobs/uploads": {"ecr:UploadLayerPart", registryCall.appendUpload},
		"PUT blobs/uploads":   {"ecr:CompleteLayerUpload", registryCall.finishUpload},
		"PUT manifests":       {"ecr:PutImage", registryCall.putManifest},
	}
}

// getManifest serves a manifest by its tag or digest.
func (c registryCall) getManifest() {
	digest := c.reference
	var found manifest
	var ok bool
	c.store.View(func() {
		repository := c.st.Repositories[c.repository]
		if tagged := repository.Tags[c.reference]; tagged != "" {
			digest = tagged
		}

		found, ok = repository.Manifests[digest]
	})

	if !ok {
		refuse(c.w, http.StatusNotFound, "MANIFEST_UNKNOWN", "Requested image not found")
		return
	}

	c.w.Header().Set("Docker-Content-Digest", digest)
	c.serveFile(c.w, c.r, digest, found.MediaType)
}

// hasLayer reports whether the repository has a layer.
func (c registryCall) hasLayer() bool {
	ok := false
	c.store.View(func() { ok = c.st.Repositories[c.repository].Layers[c.reference] })
	if !ok {
		refuse(c.w, http.StatusNotFound, "BLOB_UNKNOWN", "the repository has no layer "+c.reference)
	}

	return ok
}

func (c registryCall) headLayer() {
	if !c.hasLayer() {
		return
	}

	c.w.Header().Set("Docker-Content-Digest", c.reference)
	c.serveFile(c.w, c.r, c.reference, "application/octet-stream")
}

// redirectToLayer sends the client to S3.
func (c registryCall) redirectToLayer() {
	if !c.hasLayer() {
		return
	}

	var query string
	c.store.View(func() { query = signLayer(c.st.Key, c.reference, c.cfg.Now()) })

	// The region has no TLS.
	http.Redirect(c.w, c.r, "http://"+c.layerHost()+"/"+c.reference+"?"+query, http.StatusTemporaryRedirect)
}

// serveLayer serves a layer to a client that the registry has sent.
func (s *Service) serveLayer(w http.ResponseWriter, r *http.Request) {
	digest := strings.TrimPrefix(r.URL.Path, "/")
	accepted := false
	s.store.View(func() { accepted = acceptsLayer(s.st.Key, digest, r.URL.Query(), s.cfg.Now()) })

	switch {
	case r.Header.Get("Authorization") != "":
		// S3 takes one way of authentication only, and knows no tokens of Amazon ECR.
		http.Error(w, "InvalidArgument: Only one auth mechanism allowed", http.StatusBadRequest)
	case !accepted || r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "AccessDenied", http.StatusForbidden)
	default:
		s.serveFile(w, r, digest, "application/octet-stream")
	}
}

func (c registryCall) listTags() {
	list := struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}{Name: c.repository}
	c.store.View(func() { list.Tags = sdkshape.SortedKeys(c.st.Repositories[c.repository].Tags) })
	slices.Sort(list.Tags)
	c.w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(c.w).Encode(list) // fails only if the client has disconnected
}

// blobPath returns the file with a content, and whether the digest is one.
func (s *Service) blobPath(digest string) (string, bool) {
	sum, ok := strings.CutPrefix(digest, "sha256:")

	return filepath.Join(s.cfg.Dir, "sha256", sum), ok && regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(sum)
}

// serveFile serves a content.
func (s *Service) serveFile(w http.ResponseWriter, r *http.Request, digest, mediaType string) {
	path, ok := s.blobPath(digest)
	if !ok {
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", digest+" is not a sha256 digest")
		return
	}

	f, err := os.Open(path)
	if err != nil {
		refuse(w, http.StatusNotFound, "BLOB_UNKNOWN", "unknown content "+digest)
		return
	}

	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		refuse(w, http.StatusNotFound, "BLOB_UNKNOWN", "unknown content "+digest)
		return
	}

	w.Header().Set("Content-Type", mediaType)
	http.ServeContent(w, r, "", info.ModTime(), f)
}

// refuse writes an error of the OCI distribution specification.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	body := map[string]any{"errors": []map[string]string{{"code": code, "message": message}}}
	_ = json.NewEncoder(w).Encode(body) // fails only if the client has disconnected
}

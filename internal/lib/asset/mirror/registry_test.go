// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/lib/asset/build"
	"github.com/slipway-k8s/slipway/internal/lib/asset/mirror"
)

// testRegistry is a registry on loopback.
type testRegistry struct {
	*httptest.Server
	host string

	mu      sync.Mutex
	writes  int                              // uploads and manifests
	refuses func(*http.Request) (status int) // 0: answered; under the lock
}

// refuse sets what the registry answers with instead of an image.
func (r *testRegistry) refuse(refuses func(*http.Request) (status int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuses = refuses
}

// writesSoFar counts uploads and manifests.
func (r *testRegistry) writesSoFar() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}

// admit counts a request, and returns the status it is refused with, or 0.
func (r *testRegistry) admit(req *http.Request) (status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if status = r.refuses(req); status != 0 {
		return status
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		r.writes++
	}
	return 0
}

func startRegistry(t *testing.T) *testRegistry {
	t.Helper()
	r := &testRegistry{refuses: func(*http.Request) int { return 0 }}
	handler := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if status := r.admit(req); status != 0 {
			w.Header().Set("Www-Authenticate", `Basic realm="https://ecr/",service="ecr.amazonaws.com"`)
			w.WriteHeader(status)
			return
		}
		handler.ServeHTTP(w, req)
	}))
	t.Cleanup(r.Close)
	r.host = strings.TrimPrefix(r.URL, "http://")
	return r
}

func digestOf(t *testing.T, image interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

const kubeProxy, pause = "registry.example.com/kube-proxy:v1.0.0", "registry.example.com/pause:3.10"

// pushUpstream stores an image for two architectures and one for a single one, and returns their catalogue and the
// digests by reference and architecture.
func (r *testRegistry) pushUpstream(t *testing.T) (asset.Catalog, map[string]string) {
	t.Helper()
	digests := map[string]string{}
	var all []mutate.IndexAddendum
	for _, arch := range []string{"amd64", "arm64", "s390x"} {
		image := assettest.NewImage(t, arch)
		digests[kubeProxy+" "+arch] = digestOf(t, image)
		all = append(all, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	windows := mutate.IndexAddendum{Add: assettest.NewImage(t, "amd64"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "windows", Architecture: "amd64"}}}
	index := mutate.AppendManifests(empty.Index, append([]mutate.IndexAddendum{windows}, all...)...)
	single := assettest.NewImage(t, "amd64")
	digests[pause+" amd64"] = digestOf(t, single)
	if err := remote.Push(r.parse(t, kubeProxy), index); err != nil {
		t.Fatal(err)
	}
	if err := remote.Push(r.parse(t, pause), single); err != nil {
		t.Fatal(err)
	}
	return asset.Catalog{
		ContainerRegistry: r.host,
		Images:            []asset.Image{{Name: "kube-proxy", Version: "1.0.0", Ref: kubeProxy}, {Name: "pause", Version: "3.10", Ref: pause}},
	}, digests
}

func (r *testRegistry) parse(t *testing.T, ref string) name.Reference {
	t.Helper()
	parsed, err := name.ParseReference(r.host + "/" + ref)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// planImages returns the plan for a registry and its steps, as ACTION ASSET.
func planImages(t *testing.T, o mirror.Options) (*mirror.Plan, []string) {
	t.Helper()
	o.Log, o.Clock = io.Discard, time.Now
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	if o.Archs == nil {
		o.Archs = []string{"amd64", "arm64"}
	}
	o.Registry.Keys = authn.NewMultiKeychain()
	plan, err := mirror.NewPlan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, s := range plan.Steps {
		steps = append(steps, s.Action+" "+s.Asset)
	}
	return plan, steps
}

// TestImagesAreMirrored: for the architectures that are wanted, by digest and by tag, and only what is missing.
func TestImagesAreMirrored(t *testing.T) {
	from, to := startRegistry(t), startRegistry(t)
	catalog, digests := from.pushUpstream(t)
	o := mirror.Options{Catalog: catalog, Folder: t.TempDir(), Registry: &mirror.Registry{Prefix: to.host + "/team/k8s"}}
	plan, steps := planImages(t, o)
	if want := []string{"copy image kube-proxy 1.0.0 amd64 and arm64", "copy image pause 3.10 amd64"}; !slices.Equal(steps, want) || to.writesSoFar() > 0 {
		t.Errorf("steps %q after %d writes, want %q", steps, to.writesSoFar(), want)
	}
	wantPins := map[string]string{"amd64": digests[kubeProxy+" amd64"], "arm64": digests[kubeProxy+" arm64"]}
	if got := plan.Catalog.Images[0].Digests; fmt.Sprint(got) != fmt.Sprint(wantPins) || plan.Catalog.ContainerRegistry != to.host+"/team/k8s" {
		t.Errorf("pinned to %v in %s, want %v", got, plan.Catalog.ContainerRegistry, wantPins)
	}
	if len(catalog.Images[0].Digests) > 0 {
		t.Error("the catalogue of the options was changed")
	}

	// A blob that cannot be read fails one image; the rest is copied, and the next run continues.
	refused := false
	from.refuse(func(req *http.Request) int {
		if strings.Contains(req.URL.Path, "kube-proxy/blobs") && !refused {
			refused = true
			return http.StatusNotFound
		}
		return 0
	})
	if err := plan.Copy(t.Context()); err == nil || !strings.Contains(err.Error(), "copy image kube-proxy 1.0.0 amd64 and arm64 to "+to.host) {
		t.Errorf("a blob that upstream does not have: %v", err)
	}
	from.refuse(func(*http.Request) int { return 0 })
	plan, steps = planImages(t, o)
	if err := plan.Copy(t.Context()); err != nil || !slices.Equal(steps, []string{"copy image kube-proxy 1.0.0 amd64 and arm64"}) {
		t.Errorf("continued with %q: %v", steps, err)
	}

	for of, digest := range digests {
		ref, arch, _ := strings.Cut(of, " ")
		digested := to.parse(t, "team/k8s/"+ref).Context().Digest(digest)
		image, err := remote.Image(digested)
		if arch == "s390x" {
			if err == nil {
				t.Error("an architecture was copied that nobody asked for")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Image(image); err != nil {
			t.Errorf("%s: %v", of, err)
		}
		tagged, err := remote.Image(to.parse(t, "team/k8s/"+ref), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil || digestOf(t, tagged) != digest {
			t.Errorf("%s by its tag: %v", of, err)
		}
	}

	o.Catalog = plan.Catalog
	o.Catalog.ContainerRegistry = "127.0.0.1:1" // with pins it is not even asked
	before := to.writesSoFar()
	if _, steps = planImages(t, o); len(steps) > 0 || to.writesSoFar() != before {
		t.Errorf("everything is there, and the plan has %q", steps)
	}
}

// TestPinnedImagesComeFromTheFolder: those that 'slipway assets build' stored, without upstream.
func TestPinnedImagesComeFromTheFolder(t *testing.T) {
	to := startRegistry(t)
	folder := t.TempDir()
	path, err := layout.Write(filepath.Join(folder, "images"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	image := assettest.NewImage(t, "amd64")
	if err := path.AppendImage(image, layout.WithAnnotations(map[string]string{build.RefAnnotation: pause})); err != nil {
		t.Fatal(err)
	}
	pins := map[string]string{"amd64": digestOf(t, image)}
	o := mirror.Options{
		Catalog: asset.Catalog{ContainerRegistry: "127.0.0.1:1", Images: []asset.Image{{Name: "pause", Version: "3.10", Ref: pause, Digests: pins}}},
		Folder:  folder, Registry: &mirror.Registry{Prefix: to.host},
	}
	plan, steps := planImages(t, o)
	if err := plan.Copy(t.Context()); err != nil || !slices.Equal(steps, []string{"copy image pause 3.10 amd64"}) {
		t.Fatalf("%q: %v", steps, err)
	}
	if got, err := remote.Image(to.parse(t, pause)); err != nil || digestOf(t, got) != pins["amd64"] {
		t.Errorf("the registry has another image: %v", err)
	}

	// The tag was moved: the plan sets it again.
	if err := remote.Push(to.parse(t, pause), assettest.NewImage(t, "amd64")); err != nil {
		t.Fatal(err)
	}
	if _, steps = planImages(t, o); len(steps) != 1 {
		t.Errorf("a moved tag: %q", steps)
	}
}

// ecrFake is Amazon ECR: it has repositories and a token. It does not see a new repository at once.
type ecrFake struct {
	repositories []string
	unseen       string // the newest repository, until a call asks for it
}

// has reports whether Amazon ECR sees the repository of a request to the registry.
func (e *ecrFake) has(path string) bool {
	return slices.ContainsFunc(e.repositories, func(r string) bool { return r != e.unseen && strings.HasPrefix(path, r+"/") })
}

func (e *ecrFake) GetAuthorizationToken(
	context.Context, *ecr.GetAuthorizationTokenInput, ...func(*ecr.Options),
) (*ecr.GetAuthorizationTokenOutput, error) {
	token := base64.StdEncoding.EncodeToString([]byte("AWS:secret"))
	return &ecr.GetAuthorizationTokenOutput{AuthorizationData: []types.AuthorizationData{{AuthorizationToken: &token}}}, nil
}

func (e *ecrFake) DescribeRepositories(
	_ context.Context, in *ecr.DescribeRepositoriesInput, _ ...func(*ecr.Options),
) (*ecr.DescribeRepositoriesOutput, error) {
	if slices.Contains(in.RepositoryNames, e.unseen) {
		e.unseen = ""
		return nil, &types.RepositoryNotFoundException{}
	}
	out := &ecr.DescribeRepositoriesOutput{}
	for _, r := range e.repositories {
		out.Repositories = append(out.Repositories, types.Repository{RepositoryName: &r})
	}
	return out, nil
}

func (e *ecrFake) CreateRepository(
	_ context.Context, in *ecr.CreateRepositoryInput, _ ...func(*ecr.Options),
) (*ecr.CreateRepositoryOutput, error) {
	if *in.RegistryId != "123456789012" || slices.Contains(e.repositories, *in.RepositoryName) {
		return nil, &types.RepositoryAlreadyExistsException{}
	}
	e.repositories = append(e.repositories, *in.RepositoryName)
	e.unseen = *in.RepositoryName
	return &ecr.CreateRepositoryOutput{}, nil
}

// redirect sends requests for hosts of AWS to a server on loopback.
type redirect struct{ to string }

func (r redirect) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Host, ".amazonaws.com") {
		return http.DefaultTransport.RoundTrip(req)
	}
	there := req.Clone(req.Context())
	there.URL = &url.URL{Scheme: "http", Host: r.to, Path: req.URL.Path, RawQuery: req.URL.RawQuery}
	resp, err := http.DefaultTransport.RoundTrip(there)
	if err == nil {
		resp.Request = req
	}
	return resp, err
}

// TestRepositoriesOfECRAreCreated: ECR requires a token and has only repositories that were created.
func TestRepositoriesOfECRAreCreated(t *testing.T) {
	from, to, api := startRegistry(t), startRegistry(t), &ecrFake{repositories: []string{"k8s/registry.example.com/pause"}}
	catalog, _ := from.pushUpstream(t)
	to.refuse(func(req *http.Request) int {
		user, password, _ := req.BasicAuth()
		path := strings.TrimPrefix(req.URL.Path, "/v2/")
		exists := path == "" || api.has(path)
		switch {
		case user != "AWS" || password != "secret":
			return http.StatusUnauthorized
		case !exists:
			return http.StatusNotFound
		default:
			return 0
		}
	})
	const host = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"
	o := mirror.Options{
		Catalog: catalog, Folder: t.TempDir(), Transport: redirect{to.host},
		Registry: &mirror.Registry{Prefix: host + "/k8s", ECR: &mirror.ECR{API: api, Account: "123456789012"}},
	}
	plan, steps := planImages(t, o)
	want := []string{"create repository image kube-proxy", "copy image kube-proxy 1.0.0 amd64 and arm64", "copy image pause 3.10 amd64"}
	if !slices.Equal(steps, want) {
		t.Errorf("steps %q, want %q", steps, want)
	}
	if err := plan.Copy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, steps = planImages(t, o); len(steps) > 0 {
		t.Errorf("everything is there, and the plan has %q", steps)
	}
}

// startSink starts a registry that accepts everything and has nothing. It counts what it gets.
func startSink(t *testing.T, size *atomic.Int64) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		isManifest := strings.Contains(req.URL.Path, "/manifests/")
		switch {
		case req.Method == http.MethodPost || req.Method == http.MethodPatch:
			n, _ := io.Copy(io.Discard, req.Body)
			size.Add(n)
			w.Header().Set("Location", "/v2/uploads/1")
			w.WriteHeader(http.StatusAccepted)
		case req.Method == http.MethodPut:
			w.WriteHeader(http.StatusCreated)
		case isManifest || strings.Contains(req.URL.Path, "/blobs/"):
			w.WriteHeader(http.StatusNotFound)
		default:
			w.WriteHeader(http.StatusOK)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// TestLargeLayersAreNotHeldInMemory: what a copy allocates does not grow with the layer.
func TestLargeLayersAreNotHeldInMemory(t *testing.T) {
	const size = 32 << 20
	image, err := random.Image(size, 1)
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.ConfigFile(image, &v1.ConfigFile{OS: "linux", Architecture: "amd64"}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path, err := layout.Write(filepath.Join(dir, "images"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(image, layout.WithAnnotations(map[string]string{build.RefAnnotation: pause})); err != nil {
		t.Fatal(err)
	}
	from := httptest.NewServer(build.RegistryHandler(dir))
	defer from.Close()
	var received atomic.Int64
	plan, _ := planImages(t, mirror.Options{
		Catalog: asset.Catalog{
			ContainerRegistry: strings.TrimPrefix(from.URL, "http://"),
			Images:            []asset.Image{{Name: "pause", Version: "3.10", Ref: pause}},
		},
		Folder: t.TempDir(), Registry: &mirror.Registry{Prefix: startSink(t, &received)},
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = plan.Copy(t.Context())
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; err != nil || received.Load() < size || allocated > size/4 {
		t.Errorf("copied %d bytes and allocated %d, %v", received.Load(), allocated, err)
	}
}

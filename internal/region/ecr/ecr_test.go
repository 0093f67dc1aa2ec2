// SPDX-License-Identifier: Apache-2.0

package ecr_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

const host = regiontest.AccountID + ".dkr.ecr.us-east-1.amazonaws.com"

// registryLab is a region with clients.
type registryLab struct {
	*testing.T
	region    regiontest.Region
	transport regiontest.HostNames
	api       *sdk.Client
}

func newLab(t *testing.T) *registryLab {
	t.Helper()
	r := regiontest.Start(t)

	return &registryLab{T: t, region: r, transport: regiontest.HostNames{Region: r}, api: sdk.NewFromConfig(r.AWSConfig())}
}

func (l *registryLab) create(names ...string) {
	l.Helper()
	for _, n := range names {
		if _, err := l.api.CreateRepository(l.Context(), &sdk.CreateRepositoryInput{RepositoryName: &n}); err != nil {
			l.Fatal(err)
		}
	}
}

// login returns the credentials for the registry of a client of the API.
func (l *registryLab) login(api *sdk.Client) authn.AuthConfig {
	l.Helper()
	out, err := api.GetAuthorizationToken(l.Context(), &sdk.GetAuthorizationTokenInput{})
	if err != nil {
		l.Fatal(err)
	}
	data := out.AuthorizationData[0]
	if left := time.Until(*data.ExpiresAt); left < 11*time.Hour || left > 12*time.Hour || *data.ProxyEndpoint != "https://"+host {
		l.Errorf("a token for %s that is valid for %s", *data.ProxyEndpoint, left)
	}
	text, err := base64.StdEncoding.DecodeString(*data.AuthorizationToken)
	user, password, ok := strings.Cut(string(text), ":")
	if err != nil || !ok || user != "AWS" {
		l.Fatalf("token of user %q: %v", user, err)
	}

	return authn.AuthConfig{Username: user, Password: password}
}

func (l *registryLab) options(c authn.AuthConfig) []remote.Option {
	return []remote.Option{remote.WithTransport(l.transport), remote.WithAuth(authn.FromConfig(c)), remote.WithContext(l.Context())}
}

func (l *registryLab) push(c authn.AuthConfig, repository string) (v1.Image, error) {
	l.Helper()
	image, err := random.Image(512, 2)
	if err != nil {
		l.Fatal(err)
	}

	return image, remote.Write(reference(l, repository+":v1"), image, l.options(c)...)
}

func reference(tb testing.TB, text string) name.Reference {
	tb.Helper()
	ref, err := name.ParseReference(host + "/" + text)
	if err != nil {
		tb.Fatal(err)
	}

	return ref
}

// TestImagesArePushedAndPulled: an image that was pushed is pulled by its tag and digest, also after a restart of the region's
// process, whose tokens stay valid.
func TestImagesArePushedAndPulled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.create("mirror/registry.k8s.io/pause")
	root := l.login(l.api)
	image, err := l.push(root, "mirror/registry.k8s.io/pause")
	if err != nil {
		t.Fatal(err)
	}

	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}

	for _, text := range []string{"mirror/registry.k8s.io/pause:v1", "mirror/registry.k8s.io/pause@" + digest.String()} {
		pulled, err := remote.Image(reference(t, text), l.options(root)...)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := validate.Image(pulled); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}

	tags, err := remote.List(reference(t, "mirror/registry.k8s.io/pause:v1").Context(), l.options(root)...)
	if err != nil || fmt.Sprint(tags) != "[v1]" {
		t.Errorf("tags %v, %v", tags, err)
	}
}

// TestRepositories: nobody pushes to a repository that was not created; names are those that AWS accepts.
func TestRepositories(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if _, err := l.push(l.login(l.api), "missing"); err == nil || !strings.Contains(err.Error(), "The repository with name 'missing' does not exist") {
		t.Errorf("push to a missing repository: %v", err)
	}

	l.create("aa", "bb", "cc")
	for given, want := range map[string]string{
		"aa": "RepositoryAlreadyExistsException", "AA": "InvalidParameterException", "a//b": "InvalidParameterException",
		"a_/b": "InvalidParameterException", "registry.k8s.io/-": "InvalidParameterException",
	} {
		_, err := l.api.CreateRepository(t.Context(), &sdk.CreateRepositoryInput{RepositoryName: &given})
		var answer smithy.APIError
		if !errors.As(err, &answer) || answer.ErrorCode() != want {
			t.Errorf("create %s: %v, want %s", given, err, want)
		}
	}

	page, err := l.api.DescribeRepositories(t.Context(), &sdk.DescribeRepositoriesInput{MaxResults: aws.Int32(2)})
	if err != nil || len(page.Repositories) != 2 || page.NextToken == nil || *page.Repositories[0].RepositoryUri != host+"/aa" {
		t.Fatalf("first page: %+v, %v", page, err)
	}

	rest, err := l.api.DescribeRepositories(t.Context(), &sdk.DescribeRepositoriesInput{NextToken: page.NextToken})
	if err != nil || len(rest.Repositories) == 0 || rest.NextToken != nil {
		t.Errorf("second page: %+v, %v", rest, err)
	}

	_, err = l.api.DescribeRepositories(t.Context(), &sdk.DescribeRepositoriesInput{RepositoryNames: []string{"none"}})
	if _, ok := errors.AsType[*types.RepositoryNotFoundException](err); !ok {
		t.Errorf("describe a missing repository: %v", err)
	}
}

// get requests a path of the registry.
func (l *registryLab) get(path string, c authn.AuthConfig) (int, http.Header, string) {
	l.Helper()
	q, err := http.NewRequestWithContext(l.Context(), http.MethodGet, "https://"+host+path, nil)
	if err != nil {
		l.Fatal(err)
	}
	if c.Username != "" {
		q.SetBasicAuth(c.Username, c.Password)
	}
	res, err := l.transport.RoundTrip(q)
	if err != nil {
		l.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		l.Fatal(err)
	}

	return res.StatusCode, res.Header, string(body)
}

// TestTokensAreRequired: without a token of the region, nothing is answered. A token expires after 12 hours.
func TestTokensAreRequired(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	valid := l.login(l.api)
	if status, _, _ := l.get("/v2/", valid); status != http.StatusOK {
		t.Errorf("with a token: %d", status)
	}

	forged := strings.Replace(valid.Password, ".", "x.", 1)
	for what, c := range map[string]authn.AuthConfig{
		"nothing": {}, "another user": {Username: "admin", Password: valid.Password},
		"a forged token": {Username: "AWS", Password: forged}, "no token": {Username: "AWS", Password: "."},
		"the key of an account": {Username: regiontest.AccessKey, Password: regiontest.SecretKey},
	} {
		status, header, _ := l.get("/v2/", c)
		if want := `Basic realm="https://` + host + `/",service="ecr.amazonaws.com"`; status != http.StatusUnauthorized || header.Get("Www-Authenticate") != want {
			t.Errorf("with %s: %d, %s", what, status, header)
		}
	}

	l.region.AdvanceClock(12*time.Hour + time.Second)
	status, _, body := l.get("/v2/", valid)
	if status != http.StatusForbidden || !strings.Contains(body, "Your authorization token has expired. Reauthenticate and try again.") {
		t.Errorf("with an old token: %d %s", status, body)
	}
}

// TestLayersComeFromS3: the registry sends clients to S3, which takes no token of the registry, no changed address and no old
// one.
func TestLayersComeFromS3(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.create("app")
	root := l.login(l.api)
	image, err := l.push(root, "app")
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}

	status, header, _ := l.get("/v2/app/blobs/"+digest.String(), root)
	at, err := url.Parse(header.Get("Location"))
	if err != nil || status != http.StatusTemporaryRedirect || at.Host != "prod-us-east-1-starport-layer-bucket.s3.us-east-1.amazonaws.com" {
		t.Fatalf("%d, to %s, %v", status, at, err)
	}

	fetch := func(u url.URL, change func(*http.Request)) int {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		change(q)
		res, err := l.transport.RoundTrip(q)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()

		return res.StatusCode
	}
	nothing := func(*http.Request) {}
	if got := fetch(*at, nothing); got != http.StatusOK {
		t.Errorf("the address answers %d", got)
	}
	if got := fetch(*at, func(q *http.Request) { q.SetBasicAuth(root.Username, root.Password) }); got != http.StatusBadRequest {
		t.Errorf("with the registry's token it answers %d", got)
	}

	other := *at
	other.Path = "/sha256:" + strings.Repeat("0", 64)
	if got := fetch(other, nothing); got != http.StatusForbidden {
		t.Errorf("for another layer it answers %d", got)
	}

	l.region.AdvanceClock(2 * time.Hour)
	if got := fetch(*at, nothing); got != http.StatusForbidden {
		t.Errorf("after two hours it answers %d", got)
	}
}

// TestPoliciesDecide: a role pulls from the repositories of its policy, and neither pushes there nor reads others. What the
// policy allows counts when the token is used, not when it was issued.
func TestPoliciesDecide(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.create("mirror/app", "other/app")
	root := l.login(l.api)
	for _, repository := range []string{"mirror/app", "other/app"} {
		if _, err := l.push(root, repository); err != nil {
			t.Fatal(err)
		}
	}

	users := iam.NewFromConfig(l.region.AWSConfig())
	if _, err := users.CreateUser(t.Context(), &iam.CreateUserInput{UserName: aws.String("puller")}); err != nil {
		t.Fatal(err)
	}
	allow := func(document string) {
		t.Helper()
		_, err := users.PutUserPolicy(t.Context(), &iam.PutUserPolicyInput{
			UserName: aws.String("puller"), PolicyName: aws.String("pull"), PolicyDocument: &document,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := users.CreateAccessKey(t.Context(), &iam.CreateAccessKeyInput{UserName: aws.String("puller")})
	if err != nil {
		t.Fatal(err)
	}
	config := l.region.AWSConfig()
	config.Credentials = credentials.NewStaticCredentialsProvider(*key.AccessKey.AccessKeyId, *key.AccessKey.SecretAccessKey, "")
	api := sdk.NewFromConfig(config)

	if _, err := api.GetAuthorizationToken(t.Context(), &sdk.GetAuthorizationTokenInput{}); err == nil || !strings.Contains(err.Error(), "ecr:GetAuthorizationToken") {
		t.Errorf("a token without the permission: %v", err)
	}

	const login = `{"Effect":"Allow","Action":"ecr:GetAuthorizationToken","Resource":"*"}`
	allow(`{"Version":"2012-10-17","Statement":[` + login + `]}`)
	puller := l.login(api)
	if _, err := remote.Image(reference(t, "mirror/app:v1"), l.options(puller)...); err == nil || !strings.Contains(err.Error(), "ecr:BatchGetImage") {
		t.Errorf("a pull without the permission: %v", err)
	}

	allow(`{"Version":"2012-10-17","Statement":[` + login + `,{"Effect":"Allow","Action":["ecr:BatchGetImage","ecr:GetDownloadUrlForLayer",` +
		`"ecr:BatchCheckLayerAvailability"],"Resource":"arn:aws:ecr:us-east-1:` + regiontest.AccountID + `:repository/mirror/*"}]}`)
	image, err := remote.Image(reference(t, "mirror/app:v1"), l.options(puller)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	if _, err := remote.Image(reference(t, "other/app:v1"), l.options(puller)...); err == nil || !strings.Contains(err.Error(), "DENIED") {
		t.Errorf("a pull from another repository: %v", err)
	}
	if _, err := l.push(puller, "mirror/app"); err == nil || !strings.Contains(err.Error(), "ecr:InitiateLayerUpload") {
		t.Errorf("a push: %v", err)
	}
	if _, err := api.CreateRepository(t.Context(), &sdk.CreateRepositoryInput{RepositoryName: aws.String("mirror/new")}); err == nil || !strings.Contains(err.Error(), "ecr:CreateRepository") {
		t.Errorf("a new repository: %v", err)
	}
}

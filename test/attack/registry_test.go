// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

const registryHost = regiontest.AccountID + ".dkr.ecr.us-east-1.amazonaws.com"

// mirroredCluster is a cluster whose images come from the private registry.
const mirroredCluster = `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  assets: {containerRegistry: ` + registryHost + `/mirror}
  networking:
    subnets: [{name: public-a, type: Public, zone: us-east-1a}]
` + smallGroups

// registryOptions logs in to the private registry as a caller.
func (l *lab) registryOptions(c caller) []remote.Option {
	l.Helper()
	out, err := ecr.NewFromConfig(l.config(c)).GetAuthorizationToken(l.Context(), &ecr.GetAuthorizationTokenInput{})
	l.check(err)
	text, err := base64.StdEncoding.DecodeString(*out.AuthorizationData[0].AuthorizationToken)
	l.check(err)
	user, password, _ := strings.Cut(string(text), ":")

	return []remote.Option{
		remote.WithTransport(regiontest.HostNames{Region: l.region}), remote.WithContext(l.Context()),
		remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: user, Password: password})),
	}
}

// pushTo pushes an image to a repository.
func (l *lab) pushTo(repository string, options []remote.Option) error {
	l.Helper()
	image, err := random.Image(64, 1)
	l.check(err)
	ref, err := name.NewTag(registryHost + "/" + repository + ":v1")
	l.check(err)

	return remote.Write(ref, image, options...)
}

// pullFrom reads an image of a repository.
func (l *lab) pullFrom(repository string, options []remote.Option) error {
	l.Helper()
	ref, err := name.NewTag(registryHost + "/" + repository + ":v1")
	l.check(err)
	_, err = remote.Get(ref, options...)

	return err
}

// pullAllFrom pulls an image of a repository with its layers, and asks for each layer first whether it is there.
func (l *lab) pullAllFrom(repository string, options []remote.Option) error {
	l.Helper()
	ref, err := name.NewTag(registryHost + "/" + repository + ":v1")
	l.check(err)
	image, err := remote.Image(ref, options...)
	if err != nil {
		return err
	}

	layers, err := image.Layers()
	if err != nil {
		return err
	}

	for _, layer := range layers {
		if found, err := partial.Exists(layer); err != nil || !found {
			return fmt.Errorf("the layer is there: %t, %w", found, err)
		}

		if err := validate.Layer(layer); err != nil {
			return err
		}
	}

	return nil
}

// TestBoundaryPullsFromItsAccountAlone: with a role of the cluster that allows everything, an operator reads images of the
// account's private registries, because the boundary knows no repositories, and nothing else there. Reading those of other
// accounts, whose owners trust this one, was seen to succeed.
func TestBoundaryPullsFromItsAccountAlone(t *testing.T) {
	l := newLab(t)
	pull := []string{"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"}
	change := []string{
		"ecr:BatchDeleteImage", "ecr:CompleteLayerUpload", "ecr:CreateRepository", "ecr:DeleteRepository", "ecr:DescribeImages",
		"ecr:DescribeRepositories", "ecr:GetRepositoryPolicy", "ecr:InitiateLayerUpload", "ecr:ListImages", "ecr:PutImage",
		"ecr:SetRepositoryPolicy", "ecr:UploadLayerPart",
	}
	may := func(action, resource string) bool {
		return escalation{steps: []step{on(action, resource)}}.allowed(l.parseText(anything), l.boundary())
	}

	if !may("ecr:GetAuthorizationToken", "*") {
		t.Error("machines get no token")
	}

	for _, action := range pull {
		for _, region := range []string{"us-east-1", "eu-central-1"} {
			if !may(action, "arn:aws:ecr:"+region+":"+regiontest.AccountID+":repository/mirror/pause") {
				t.Errorf("machines may not %s in %s", action, region)
			}
		}

		if may(action, "arn:aws:ecr:us-east-1:111122223333:repository/payments") {
			t.Errorf("machines may %s of another account", action)
		}
	}

	for _, action := range change {
		if may(action, repositoryOf+"payments") || may(action, "*") {
			t.Errorf("machines may %s", action)
		}
	}
}

// TestBoundaryOfARegistryElsewhere: an administrator allows the machines of a cluster to pull from the registry of another
// account, which its manifest names, and from no third one. The boundary for all clusters keeps that. No attack: what an administrator
// may allow.
func TestBoundaryOfARegistryElsewhere(t *testing.T) {
	l := newLab(t)
	elsewhere := strings.ReplaceAll(mirroredCluster, regiontest.AccountID, "111122223333")
	l.must(caller{}, 0, "create", "-f", l.temporaryFile("demo.yaml", elsewhere), "--yes")
	type boundary struct {
		State    string
		Outdated []string
		Document json.RawMessage
	}

	for _, args := range [][]string{{"demo"}, nil} {
		var b boundary
		l.check(json.Unmarshal([]byte(l.must(caller{}, 2, append([]string{"iam", "boundary", "-o", "json"}, args...)...)), &b))
		if b.State != "outdated" || !slices.Equal(b.Outdated, []string{"Images111122223333"}) {
			t.Errorf("%s: %s, outdated %q", args, b.State, b.Outdated)
		}

		limit := l.parseText(string(b.Document))
		for account, want := range map[string]bool{"111122223333": true, regiontest.AccountID: true, "444455556666": false} {
			attack := escalation{steps: []step{on("ecr:BatchGetImage", "arn:aws:ecr:us-east-1:"+account+":repository/mirror/pause")}}
			if attack.allowed(l.parseText(anything), limit) != want {
				t.Errorf("%s: machines may pull from account %s: %t", args, account, !want)
			}
		}
	}
}

// TestMachinesCannotPush: root on a machine replaces an image of the cluster's private registry, and so gets every machine that
// pulls it; or it reads the images of another team. The role of a machine may only pull, and only from the mirror of its
// manifest. A cluster without a private registry gives its machines nothing there, although the boundary would allow it. Never open:
// the rights to pull and this test were made together.
func TestMachinesCannotPush(t *testing.T) {
	l := newLab(t)
	api := ecr.NewFromConfig(l.config(caller{}))
	root := l.registryOptions(caller{})
	for _, repository := range []string{"mirror/registry.k8s.io/pause", "mirror-2/pause", "payments"} {
		_, err := api.CreateRepository(t.Context(), &ecr.CreateRepositoryInput{RepositoryName: &repository})
		l.check(err)
		l.check(l.pushTo(repository, root))
	}

	l.must(caller{}, 0, "create", "-f", l.temporaryFile("demo.yaml", mirroredCluster), "--yes")
	l.must(caller{}, 0, "apply", "demo", "--yes")

	for _, role := range []string{l.roleOfSlot("a"), "demo.worker.us-east-1"} {
		machine := l.assumed(role)
		options := l.registryOptions(machine)
		l.check(l.pullFrom("mirror/registry.k8s.io/pause", options))
		for what, err := range map[string]error{
			"push to the mirror":             l.pushTo("mirror/registry.k8s.io/pause", options),
			"push to a repository of others": l.pushTo("payments", options),
			"pull from another prefix":       l.pullFrom("mirror-2/pause", options),
			"pull from another repository":   l.pullFrom("payments", options),
		} {
			refused, ok := errors.AsType[*transport.Error](err)
			if !ok || refused.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s: the attack succeeded or failed for another reason: %v", role, what, err)
			}
		}
		attacker := ecr.NewFromConfig(l.config(machine))
		_, err := attacker.CreateRepository(t.Context(), &ecr.CreateRepositoryInput{RepositoryName: sdk.String("mirror/attack")})
		l.denied(role+": create a repository", err)
		_, err = attacker.DescribeRepositories(t.Context(), &ecr.DescribeRepositoriesInput{})
		l.denied(role+": list the repositories", err)
	}

	plain := newLab(t)
	plain.createCluster()
	_, err := ecr.NewFromConfig(plain.config(plain.assumed("demo.worker.us-east-1"))).
		GetAuthorizationToken(t.Context(), &ecr.GetAuthorizationTokenInput{})
	plain.denied("log in without a private registry", err)
}

// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/cluster/explain"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// templateAPI are the calls for launch templates.
type templateAPI interface {
	ec2.DescribeLaunchTemplatesAPIClient
	templateVersionAPI
}

// templateVersionAPI is the call for the versions of a launch template.
type templateVersionAPI interface {
	DescribeLaunchTemplateVersions(
		context.Context,
		*ec2.DescribeLaunchTemplateVersionsInput,
		...func(*ec2.Options),
	) (*ec2.DescribeLaunchTemplateVersionsOutput, error)
}

// templateReader compares versions of launch templates. A version never changes, so each is read once.
type templateReader struct {
	api   templateVersionAPI
	known map[string]templateContent // by id and version
}

// templateContent is a version of a launch template.
type templateContent struct {
	// document is the SHA-256 of the node document; empty if there is none.
	document string
	// rest is the same for versions that differ in nothing but the document.
	rest string
}

func newTemplateReader(api templateVersionAPI) *templateReader {
	return &templateReader{api: api, known: map[string]templateContent{}}
}

// addDocuments sets the group's node document, and which machines have a template that differs only in that. It makes
// no call for a group whose machines have its present template.
func (r *templateReader) addDocuments(
	ctx context.Context,
	id string,
	group *rollout.Group,
	machines []rollout.Machine,
) error {
	versions := []string{group.Version}
	for _, m := range machines {
		if m.Version != "" && !slices.Contains(versions, m.Version) {
			versions = append(versions, m.Version)
		}
	}

	if r == nil || id == "" || len(versions) == 1 {
		return nil
	}

	if err := r.read(ctx, id, versions); err != nil {
		return err
	}

	wanted := r.known[id+" "+group.Version]
	group.Document = wanted.document
	for i := range machines {
		has := r.known[id+" "+machines[i].Version]
		machines[i].DiffersInDocument = wanted.document != "" && has.document != "" && has.rest == wanted.rest
	}

	return nil
}

// read reads the versions that are not known. A deleted version stays unknown.
func (r *templateReader) read(ctx context.Context, id string, versions []string) error {
	missing := slices.DeleteFunc(slices.Clone(versions), func(v string) bool {
		_, known := r.known[id+" "+v]
		return known
	})
	if len(missing) == 0 {
		return nil
	}

	out, err := r.api.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{
		LaunchTemplateId: aws.String(id),
		Versions:         missing,
	})
	if err != nil {
		return fmt.Errorf("read versions of launch template %s: %w", id, err)
	}

	for _, v := range missing {
		r.known[id+" "+v] = templateContent{}
	}

	for _, v := range out.LaunchTemplateVersions {
		content, err := newTemplateContent(v)
		if err != nil {
			return fmt.Errorf(
				"read version %d of launch template %s: %w",
				aws.ToInt64(v.VersionNumber),
				id,
				err,
			)
		}

		r.known[fmt.Sprintf("%s %d", id, aws.ToInt64(v.VersionNumber))] = content
	}

	return nil
}

func newTemplateContent(v ec2types.LaunchTemplateVersion) (templateContent, error) {
	if v.LaunchTemplateData == nil {
		return templateContent{}, nil
	}

	data := *v.LaunchTemplateData
	text, err := base64.StdEncoding.DecodeString(aws.ToString(data.UserData))
	if err != nil {
		return templateContent{}, fmt.Errorf("decode its user data: %w", err)
	}

	document, rest, ok := explain.SplitUserData(string(text))
	if !ok {
		return templateContent{}, nil
	}

	data.UserData = aws.String(rest)
	body, err := json.Marshal(data)
	if err != nil {
		return templateContent{}, fmt.Errorf("encode it: %w", err)
	}

	return templateContent{document: document, rest: string(body)}, nil
}

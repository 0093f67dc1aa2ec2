// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type templateAPI interface {
	tagAPI
	ec2.DescribeLaunchTemplatesAPIClient
	ec2.DescribeLaunchTemplateVersionsAPIClient
	CreateLaunchTemplate(
		context.Context,
		*ec2.CreateLaunchTemplateInput,
		...func(*ec2.Options),
	) (*ec2.CreateLaunchTemplateOutput, error)
	CreateLaunchTemplateVersion(
		context.Context,
		*ec2.CreateLaunchTemplateVersionInput,
		...func(*ec2.Options),
	) (*ec2.CreateLaunchTemplateVersionOutput, error)
	ModifyLaunchTemplate(
		context.Context,
		*ec2.ModifyLaunchTemplateInput,
		...func(*ec2.Options),
	) (*ec2.ModifyLaunchTemplateOutput, error)
	DeleteLaunchTemplate(
		context.Context,
		*ec2.DeleteLaunchTemplateInput,
		...func(*ec2.Options),
	) (*ec2.DeleteLaunchTemplateOutput, error)
}

// latestVersionAttribute is the attribute that auto scaling groups refer to.
const latestVersionAttribute = "LatestVersionNumber"

// registerLaunchTemplates registers the driver of launch templates. An update creates a new
// version; auto scaling groups refer to versions by number.
func registerLaunchTemplates(c *Cloud, pruner templatePruner, api templateAPI, scope Scope) {
	c.addReader(
		func(ctx context.Context) ([]plan.ActualResource, error) { return readTemplates(ctx, api, scope) },
		awskind.LaunchTemplate{},
	)

	registerDriver(c, driver[awskind.LaunchTemplate]{
		create: func(ctx context.Context, t task[awskind.LaunchTemplate]) (plan.StepResult, error) {
			out, err := api.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
				LaunchTemplateName: &t.want.Name,
				ClientToken:        &t.token,
				LaunchTemplateData: toTemplateRequest(t.want.Data),
				TagSpecifications:  tagSpecifications(ec2types.ResourceTypeLaunchTemplate, t.want.Tags),
			})
			if err != nil {
				return plan.StepResult{}, transport.Wrap(err, "create launch template")
			}

			return templateResult(
				aws.ToString(out.LaunchTemplate.LaunchTemplateId),
				out.LaunchTemplate.LatestVersionNumber,
			), nil
		},
		update: func(ctx context.Context, t task[awskind.LaunchTemplate]) (plan.StepResult, error) {
			return updateTemplate(ctx, api, pruner, t)
		},
		remove: func(ctx context.Context, t task[awskind.LaunchTemplate]) error {
			_, err := api.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: &t.id})
			return transport.Wrap(err, "delete")
		},
	})
}

// templateResult returns the result for a template whose latest version is version.
func templateResult(id string, version *int64) plan.StepResult {
	return plan.StepResult{
		ID:         id,
		Attributes: map[string]string{latestVersionAttribute: strconv.FormatInt(aws.ToInt64(version), 10)},
	}
}

// updateTemplate creates a new version if the data differ, makes it the default version, deletes old ones, and
// updates the tags.
func updateTemplate(
	ctx context.Context,
	api templateAPI,
	pruner templatePruner,
	t task[awskind.LaunchTemplate],
) (plan.StepResult, error) {
	result := keepIdentity(t)
	if len(plan.Diff(awskind.LaunchTemplate{Data: t.want.Data}, t.have)) > 0 {
		out, err := api.CreateLaunchTemplateVersion(ctx, &ec2.CreateLaunchTemplateVersionInput{
			LaunchTemplateId:   &t.id,
			ClientToken:        &t.token,
			LaunchTemplateData: toTemplateRequest(t.want.Data),
		})
		if err != nil {
			return plan.StepResult{}, transport.Wrap(err, "create launch template version")
		}

		version := out.LaunchTemplateVersion.VersionNumber
		result = templateResult(t.id, version)
		number := strconv.FormatInt(aws.ToInt64(version), 10)
		in := &ec2.ModifyLaunchTemplateInput{LaunchTemplateId: &t.id, DefaultVersion: &number}
		if _, err := api.ModifyLaunchTemplate(ctx, in); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set the default version to %s", number)
		}

		pruner.deleteOldVersions(ctx, t.id, aws.ToInt64(version))
	}

	return result, retagEC2(ctx, api, t.id, t.want.Tags, t.have.Tags)
}

// templatePageSize is the largest page of templates and of their versions that EC2 returns.
const templatePageSize = 200

// readTemplates needs two paged calls for any number of templates: EC2 lists the latest versions of
// all of them at once.
func readTemplates(ctx context.Context, api templateAPI, scope Scope) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	index := map[string]int{} // in out, by id
	pages := ec2.NewDescribeLaunchTemplatesPaginator(
		api,
		&ec2.DescribeLaunchTemplatesInput{
			Filters:    clusterFilters(scope),
			MaxResults: aws.Int32(templatePageSize),
		},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list launch templates")
		}

		for _, lt := range page.LaunchTemplates {
			r := awskind.LaunchTemplate{Name: aws.ToString(lt.LaunchTemplateName), Tags: FromEC2Tags(lt.Tags)}
			id := aws.ToString(lt.LaunchTemplateId)
			index[id] = len(out)
			out = append(out, plan.ActualResource{
				Addr:       addressFromTags(r.Tags),
				ID:         id,
				Resource:   r,
				Attributes: templateResult(id, lt.LatestVersionNumber).Attributes,
			})
		}
	}

	if len(out) == 0 || omitsDetails(ctx) {
		return out, nil
	}

	versions := ec2.NewDescribeLaunchTemplateVersionsPaginator(api, &ec2.DescribeLaunchTemplateVersionsInput{
		Versions:   []string{"$Latest"},
		MaxResults: aws.Int32(templatePageSize),
	})

	for versions.HasMorePages() {
		page, err := versions.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the versions of launch templates")
		}

		for _, v := range page.LaunchTemplateVersions {
			i, ok := index[aws.ToString(v.LaunchTemplateId)]
			if !ok || v.LaunchTemplateData == nil {
				continue // a template of another cluster
			}

			if r, ok := out[i].Resource.(awskind.LaunchTemplate); ok {
				r.Data = fromTemplateData(*v.LaunchTemplateData)
				out[i].Resource = r
			}
		}
	}

	return out, nil
}

// toTemplateRequest returns d as the input of the calls that create versions.
func toTemplateRequest(d awskind.LaunchTemplateData) *ec2types.RequestLaunchTemplateData {
	data, _ := d.UserData.Literal()
	profile := d.Profile.Name.Literal()
	req := &ec2types.RequestLaunchTemplateData{
		ImageId:            &d.ImageID,
		InstanceType:       ec2types.InstanceType(d.InstanceType),
		UserData:           &data,
		IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: &profile},
		MetadataOptions: &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{
			HttpEndpoint:            ec2types.LaunchTemplateInstanceMetadataEndpointState(d.Metadata.Endpoint),
			HttpTokens:              ec2types.LaunchTemplateHttpTokensState(d.Metadata.Tokens),
			HttpPutResponseHopLimit: int32OrNil(d.Metadata.HopLimit),
		},
		PrivateDnsNameOptions: toHostnameRequest(d.Hostname),
	}
	if d.KeyName.Literal() != "" {
		req.KeyName = aws.String(d.KeyName.Literal())
	}

	if profile == "" {
		req.IamInstanceProfile = nil
	}

	for _, g := range d.SecurityGroups {
		req.SecurityGroupIds = append(req.SecurityGroupIds, g.Literal())
	}

	for _, b := range d.BlockDevices {
		req.BlockDeviceMappings = append(req.BlockDeviceMappings, toBlockDeviceRequest(b))
	}

	for _, s := range d.Tags {
		req.TagSpecifications = append(req.TagSpecifications, ec2types.LaunchTemplateTagSpecificationRequest{
			ResourceType: ec2types.ResourceType(s.ResourceType),
			Tags:         toEC2Tags(s.Tags),
		})
	}

	return req
}

func toHostnameRequest(h awskind.HostnameOptions) *ec2types.LaunchTemplatePrivateDnsNameOptionsRequest {
	if h == (awskind.HostnameOptions{}) {
		return nil
	}

	out := &ec2types.LaunchTemplatePrivateDnsNameOptionsRequest{HostnameType: ec2types.HostnameType(h.Type)}
	if h.ResourceNameA { // as in templates, which leave out what is false
		out.EnableResourceNameDnsARecord = &h.ResourceNameA
	}

	return out
}

func toBlockDeviceRequest(b awskind.BlockDevice) ec2types.LaunchTemplateBlockDeviceMappingRequest {
	key, _ := b.EBS.KMSKey.Literal()

	return ec2types.LaunchTemplateBlockDeviceMappingRequest{
		DeviceName: &b.DeviceName,
		Ebs: &ec2types.LaunchTemplateEbsBlockDeviceRequest{
			VolumeType:          ec2types.VolumeType(b.EBS.VolumeType),
			VolumeSize:          int32OrNil(b.EBS.VolumeSize),
			Iops:                int32OrNil(b.EBS.IOPS),
			Throughput:          int32OrNil(b.EBS.Throughput),
			Encrypted:           &b.EBS.Encrypted,
			KmsKeyId:            stringOrNil(key),
			DeleteOnTermination: &b.EBS.DeleteOnTermination,
		},
	}
}

// fromTemplateData returns the data of a version that EC2 lists.
func fromTemplateData(v ec2types.ResponseLaunchTemplateData) awskind.LaunchTemplateData {
	d := awskind.LaunchTemplateData{
		ImageID:      aws.ToString(v.ImageId),
		InstanceType: string(v.InstanceType),
		UserData:     graph.LiteralText(aws.ToString(v.UserData)),
	}
	if v.KeyName != nil {
		d.KeyName = graph.UnmanagedRef[awskind.KeyPair](*v.KeyName)
	}

	if v.IamInstanceProfile != nil {
		d.Profile.Name = graph.UnmanagedRef[awskind.InstanceProfile](aws.ToString(v.IamInstanceProfile.Name))
	}

	if m := v.MetadataOptions; m != nil {
		d.Metadata = awskind.MetadataOptions{
			Endpoint: string(m.HttpEndpoint),
			Tokens:   string(m.HttpTokens),
			HopLimit: int(aws.ToInt32(m.HttpPutResponseHopLimit)),
		}
	}

	if h := v.PrivateDnsNameOptions; h != nil {
		d.Hostname = awskind.HostnameOptions{
			Type:          string(h.HostnameType),
			ResourceNameA: aws.ToBool(h.EnableResourceNameDnsARecord),
		}
	}

	for _, g := range v.SecurityGroupIds {
		d.SecurityGroups = append(d.SecurityGroups, graph.UnmanagedRef[awskind.SecurityGroup](g))
	}

	for _, b := range v.BlockDeviceMappings {
		device := awskind.BlockDevice{DeviceName: aws.ToString(b.DeviceName)}
		if e := b.Ebs; e != nil {
			device.EBS = awskind.EBS{
				VolumeType:          string(e.VolumeType),
				VolumeSize:          int(aws.ToInt32(e.VolumeSize)),
				IOPS:                int(aws.ToInt32(e.Iops)),
				Throughput:          int(aws.ToInt32(e.Throughput)),
				Encrypted:           aws.ToBool(e.Encrypted),
				KMSKey:              graph.LiteralText(aws.ToString(e.KmsKeyId)),
				DeleteOnTermination: aws.ToBool(e.DeleteOnTermination),
			}
		}

		d.BlockDevices = append(d.BlockDevices, device)
	}

	for _, s := range v.TagSpecifications {
		d.Tags = append(
			d.Tags,
			awskind.TagSpecification{ResourceType: string(s.ResourceType), Tags: FromEC2Tags(s.Tags)},
		)
	}

	return d
}

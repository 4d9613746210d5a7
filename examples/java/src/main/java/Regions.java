import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import org.apache.beam.fn.harness.ExternalWorkerService;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.extensions.python.PythonExternalTransform;
import org.apache.beam.sdk.fn.server.GrpcFnServer;
import org.apache.beam.sdk.io.TextIO;
import org.apache.beam.sdk.options.Description;
import org.apache.beam.sdk.options.PipelineOptions;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.options.PortablePipelineOptions;
import org.apache.beam.sdk.options.Validation;
import org.apache.beam.sdk.schemas.Schema;
import org.apache.beam.sdk.transforms.Create;
import org.apache.beam.sdk.transforms.MapElements;
import org.apache.beam.sdk.values.PCollection;
import org.apache.beam.sdk.values.Row;
import org.apache.beam.sdk.values.TypeDescriptors;

/**
 * Orders and revenue by region, released with differential privacy: rows of Java go into {@code DpAggregate}, which is Python, and
 * released rows come back. docs/beam_yaml.md says how it is run.
 */
public class Regions {
  private static final Schema EVENT =
      Schema.builder().addStringField("customer").addStringField("region").addDoubleField("paid").build();

  /** Where the rows are, where the expansion service listens, where the release goes. */
  public interface Options extends PipelineOptions {
    @Description("A file of lines: customer,region,paid")
    @Validation.Required
    String getInput();

    void setInput(String value);

    @Description("host:port of the expansion service")
    @Validation.Required
    String getExpansion();

    void setExpansion(String value);

    @Description("The folder to publish; it must not exist")
    @Validation.Required
    String getOutput();

    void setOutput(String value);

    @Description("Where the released rows are written as text, too")
    @Validation.Required
    String getRows();

    void setRows(String value);
  }

  public static void main(String[] args) throws Exception {
    Options options = PipelineOptionsFactory.fromArgs(args).withValidation().as(Options.class);
    PortablePipelineOptions portable = options.as(PortablePipelineOptions.class);
    if (portable.getDefaultEnvironmentType() != null) { // of a cluster
      run(options);
      return;
    }
    // Java's own steps run in this process. LOOPBACK would say so too late: a step of Python asks while the pipeline is built.
    try (GrpcFnServer<ExternalWorkerService> here = new ExternalWorkerService(options).start()) {
      portable.setDefaultEnvironmentType("EXTERNAL");
      portable.setDefaultEnvironmentConfig(here.getApiServiceDescriptor().getUrl());
      run(options);
    }
  }

  private static void run(Options options) throws IOException {
    List<Row> events = new ArrayList<>();
    for (String line : Files.readAllLines(Paths.get(options.getInput()), StandardCharsets.UTF_8)) {
      String[] cells = line.split(",");
      events.add(Row.withSchema(EVENT).addValues(cells[0], cells[1], Double.valueOf(cells[2])).build());
    }
    Pipeline pipeline = Pipeline.create(options);
    PCollection<Row> released =
        pipeline
            .apply("Events", Create.of(events).withRowSchema(EVENT))
            .apply(
                "Release",
                PythonExternalTransform.<PCollection<Row>, PCollection<Row>>from(
                        "dp_pipelines.jobs.beam_yaml.transforms.DpAggregate", options.getExpansion())
                    .withKwarg("name", "regions")
                    .withKwarg("ledger", "none")
                    .withKwarg("epsilon", 1.0)
                    .withKwarg("delta", 1e-6)
                    .withKwarg("privacy_unit", "customer")
                    .withKwarg("partition_by", "region")
                    .withKwarg("bounds", "{max_partitions_contributed: 1, max_contributions_per_partition: 3}")
                    .withKwarg(
                        "metrics",
                        "{orders: {kind: count}, revenue: {kind: sum, column: paid, min_value: 0, max_value: 6}}")
                    .withKwarg("output", options.getOutput()));
    released
        .apply(
            "Lines",
            MapElements.into(TypeDescriptors.strings()).via(row -> row.getString("region") + " " + row.getDouble("orders")))
        .apply("Write", TextIO.write().to(options.getRows()).withoutSharding());
    pipeline.run().waitUntilFinish();
  }
}

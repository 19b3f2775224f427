package neve;

import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.V1Write;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A lake as a catalog of Spark: it passes every question on to Python, where neve.spark.sql_catalog
 * answers it. The compiler inside Spark compiles this source when a lake is attached. It knows
 * no lambdas and ignores generics, so there are none.
 */
public class NeveCatalog implements TableCatalog, SupportsNamespaces {

  /** Answers a question; its details are the second argument. */
  public static volatile BiFunction python;

  private String name;
  private String lake;

  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    this.lake = options.get("lake");
  }

  public String name() {
    return name;
  }

  /** Python returns an exception instead of raising it, so that Spark sees its kind. */
  Object ask(String what, String about, Object more) {
    Object answer = python.apply(lake + "\n" + what + "\n" + about, more);
    if (answer instanceof RuntimeException) {
      throw (RuntimeException) answer;
    }
    return answer;
  }

  /** A dot inside a part must not make two parts of it: a slash is in no name of a lake. */
  private static String part(String name) {
    return name.replace('.', '/');
  }

  private static String dotted(String[] namespace) {
    String[] parts = new String[namespace.length];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = part(namespace[i]);
    }
    return String.join(".", parts);
  }

  private static String dotted(Identifier table) {
    String namespace = dotted(table.namespace());
    return namespace.isEmpty() ? part(table.name()) : namespace + "." + part(table.name());
  }

  private String[] lines(String what, String about) {
    String text = (String) ask(what, about, "");
    return text.isEmpty() ? new String[0] : text.split("\n");
  }

  // Tables

  private Table read(Identifier table, String at) throws NoSuchTableException {
    Object found = ask("read", dotted(table), at);
    if (found == null) {
      throw new NoSuchTableException(table);
    }
    return (Table) found;
  }

  public Table loadTable(Identifier table) throws NoSuchTableException {
    return read(table, "");
  }

  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    return read(table, "version " + version);
  }

  public Table loadTable(Identifier table, long micros) throws NoSuchTableException {
    return read(table, "micros " + micros);
  }

  public Table loadTable(Identifier table, Set privileges) throws NoSuchTableException {
    Object schema = ask("write", dotted(table), privileges.toString());
    if (schema == null) {
      throw new NoSuchTableException(table);
    }
    return new WrittenTable(this, dotted(table), (StructType) schema);
  }

  public boolean tableExists(Identifier table) {
    return ask("exists", dotted(table), "") != null;
  }

  public Identifier[] listTables(String[] namespace) {
    String[] names = lines("tables", dotted(namespace));
    Identifier[] found = new Identifier[names.length];
    for (int i = 0; i < names.length; i++) {
      found[i] = Identifier.of(namespace, names[i]);
    }
    return found;
  }

  public Table createTable(Identifier table, StructType schema, Transform[] by, Map properties) {
    return (Table) ask("create", dotted(table), "");
  }

  public Table alterTable(Identifier table, TableChange[] changes) {
    return (Table) ask("alter", dotted(table), "");
  }

  public boolean dropTable(Identifier table) {
    return ask("drop", dotted(table), "") != null;
  }

  public boolean purgeTable(Identifier table) {
    return ask("drop", dotted(table), "purge") != null;
  }

  public void renameTable(Identifier from, Identifier to) {
    ask("rename", dotted(from), dotted(to));
  }

  // Namespaces

  public String[][] listNamespaces() {
    return listNamespaces(new String[0]);
  }

  public String[][] listNamespaces(String[] parent) {
    String[] names = lines("namespaces", dotted(parent));
    String[][] found = new String[names.length][];
    for (int i = 0; i < names.length; i++) {
      found[i] = names[i].split("\\.");
    }
    return found;
  }

  public boolean namespaceExists(String[] namespace) {
    return ask("namespace exists", dotted(namespace), "") != null;
  }

  public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    if (!namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return new HashMap();
  }

  public void createNamespace(String[] namespace, Map properties) {
    ask("create namespace", dotted(namespace), "");
  }

  public void alterNamespace(String[] namespace, NamespaceChange[] changes) {
    ask("alter namespace", dotted(namespace), "");
  }

  public boolean dropNamespace(String[] namespace, boolean cascade) {
    return ask("drop namespace", dotted(namespace), cascade ? "cascade" : "") != null;
  }

  /** A table that rows are inserted into. */
  public static class WrittenTable implements SupportsWrite {
    private final NeveCatalog catalog;
    private final String table;
    private final StructType schema;

    WrittenTable(NeveCatalog catalog, String table, StructType schema) {
      this.catalog = catalog;
      this.table = table;
      this.schema = schema;
    }

    public String name() {
      return table;
    }

    public StructType schema() {
      return schema;
    }

    public Set capabilities() {
      return EnumSet.of(TableCapability.V1_BATCH_WRITE);
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new Insert(catalog, table);
    }
  }

  /** An INSERT: Spark passes all of its rows at once. */
  public static class Insert implements WriteBuilder, V1Write, InsertableRelation {
    private final NeveCatalog catalog;
    private final String table;

    Insert(NeveCatalog catalog, String table) {
      this.catalog = catalog;
      this.table = table;
    }

    public Write build() {
      return this;
    }

    public InsertableRelation toInsertableRelation() {
      return this;
    }

    public void insert(Dataset rows, boolean overwrite) {
      catalog.ask("insert", table, rows);
    }
  }
}
